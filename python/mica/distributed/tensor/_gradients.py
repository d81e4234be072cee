"""Backward passes with spread gradients: the engine's own sums and copies of them come to the class DTensor."""

import mica
from mica import _C
from mica.distributed.tensor._dtensor_spec import dtensor_class
from mica.distributed.tensor.placement_types import gradient_placements
from mica.utils._python_dispatch import TorchDispatchMode


class _Pass(TorchDispatchMode):
    """Sees what the engine does to gradients. It ends with the pass; after one that failed, with the next."""

    task = None  # the pass that ends it; None where a `with` block does

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        DTensor = dtensor_class()

        if any(issubclass(kind, DTensor) for kind in types):
            if func is mica.ops.aten.add_.Tensor and isinstance(args[0], DTensor):
                return _added(args[0], args[1])
            return DTensor.__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **(kwargs or {}))


def _added(gradient, other):
    """A gradient with another added: where they are spread in different ways, it becomes what their sum is."""
    if getattr(other, "placements", None) == gradient.placements:
        gradient._local_tensor.add_(other._local_tensor)
        return gradient
    total = type(gradient).__torch_dispatch__(mica.ops.aten.add.Tensor, (), (gradient, other))
    gradient._local_tensor, gradient._spec = total._local_tensor, total._spec
    return gradient


_pass = _Pass()


def _active():
    return any(_C._get_dispatch_stack_at(i) is _pass for i in range(_C._len_torch_dispatch_stack()))


def _end():
    depth = _C._len_torch_dispatch_stack()
    if depth and _C._get_dispatch_stack_at(depth - 1) is _pass:
        _C._pop_torch_dispatch_stack()


def begin_pass():
    """To be called by every node that returns a spread gradient."""
    task = _C._current_graph_task_id()
    if not _active():
        _C._push_on_torch_dispatch_stack(_pass)
    elif _pass.task in (task, None):
        return
    _pass.task = task
    _C._queue_callback(_end)


class whole_pass:
    """A backward pass that begins with a spread tensor."""

    def __enter__(self):
        self.began = not _active()
        if self.began:
            _pass.task = None
            _C._push_on_torch_dispatch_stack(_pass)

    def __exit__(self, *error):
        if self.began:
            _end()


class locally:
    """In this block plain tensors compute: no mode is asked."""

    def __enter__(self):
        self.modes = [_C._pop_torch_dispatch_stack() for _ in range(_C._len_torch_dispatch_stack())]

    def __exit__(self, *error):
        for mode in reversed(self.modes):
            _C._push_on_torch_dispatch_stack(mode)


def root_gradient(tensor):
    """The gradient that a pass begins with where none is given."""
    DTensor = dtensor_class()

    if not tensor.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if tensor.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    spec = tensor._spec.with_placements(gradient_placements(tensor._spec.placements))
    return DTensor(mica.ones_like(tensor._local_tensor), spec, requires_grad=False)


def run(engine, roots, gradients, *rest, swapped=False):
    """A pass of the engine from roots of which some are spread. Of autograd.grad the inputs come second."""
    listed = (roots,) if isinstance(roots, mica.Tensor) else tuple(roots)
    if gradients is None or isinstance(gradients, mica.Tensor):
        gradients = [gradients] * len(listed) if gradients is None else [gradients]
    made = [
        root_gradient(root) if given is None and getattr(root, "_is_spread", False) else given
        for root, given in zip(listed, gradients, strict=True)
    ]
    with whole_pass():
        if swapped:
            inputs, *options = rest
            return engine(listed, inputs, tuple(made), *options)
        return engine(listed, tuple(made), *rest)
