"""What becomes of promises: the fake tensors of a captured function, which the values of its graph replace."""

import contextlib
import sys

import mica
from mica import _C
from mica.utils._python_dispatch import _disable_current_modes


def is_exported():
    """Whether torch.export, torch.onnx or torch.jit record the calls of the program, which are then those of one graph."""
    asked = (
        ("mica.export._record", lambda module: module.current() is not None),
        ("mica.onnx._state", lambda module: module.exporting[0]),
        ("mica.jit._trace_graph", lambda module: module.tracing_state() is not None),
    )
    return any(name in sys.modules and ask(sys.modules[name]) for name, ask in asked)


@contextlib.contextmanager
def no_modes():
    """A block in which no mode is active, of functions or of operators."""
    if not _C._len_torch_function_stack() and not _C._len_torch_dispatch_stack():
        yield
        return
    modes = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    try:
        with _disable_current_modes():
            yield
    finally:
        for mode in reversed(modes):
            _C._push_on_torch_function_stack(mode)


_OF_FAKES = frozenset(["fake_mode", "fake_device", "_sizes", "_others", "_is_param", "constant", "_of_data"])


def fulfil(promises, outputs):
    """Let the objects of promises stand for the values, which the list gives away."""
    for i, promise in enumerate(promises):
        value, outputs[i] = outputs[i], None
        if type(value) in (mica.nn.Parameter, mica.nn.Buffer):
            value = value.as_subclass(_C.Tensor)
        # The value's own object is spent. Where somebody else has it, such as a function of autograd that keeps an input,
        # or another promise, the promise stands for a view of it.
        if sys.getrefcount(value) > 2 or not isinstance(value, _C.Tensor):
            with mica.set_grad_enabled(mica.is_grad_enabled() or value.requires_grad):
                value = value.view_as(value)
        # Attributes that the program has set.
        own = {name: each for name, each in vars(promise).items() if name not in _OF_FAKES}
        promise.__class__ = type(value)
        _C._swap_tensor_impl(promise, value)
        if own:
            vars(promise).update(own)
