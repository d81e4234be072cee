"""Tensors that stand for one example of a batch.

Inside `vmap` a function sees a `BatchedTensor`: it has the shape of one example and holds the values of all of them, the
batch in front. A call on it goes to a rule (`_batch_rules*.py`) that does the work of all examples with one call, or, for
an operation without a rule, through the examples one by one.

Examples do not mix, so a gradient inside the batch is the gradient of the sum over it: autograd works on the values and
needs to know nothing of this.
"""

import contextlib
import threading

from mica import _C
from mica._functions.families import own_name
from mica.func._rule_table import RULES, Plain, rule, rule_for  # noqa: F401 - files of rules import them from here

Tensor = _C.Tensor


class DataDependent(RuntimeError):
    """Raised when a function asks for the value of an example: then it cannot run on all examples at once."""


_ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
    "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch "
    "internals, please file a bug report."
)
_BRANCH = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that "
    "yet, please shout over at https://github.com/pytorch/functorch/issues/257 ."
)


class Level:
    """One vmap that is running."""

    __slots__ = ("changed", "depth", "randomness", "size")

    def __init__(self, depth, size, randomness):
        self.depth, self.size, self.randomness = depth, size, randomness
        self.changed = False  # whether something was changed in place: then the function cannot start again


class _Stack(threading.local):
    def __init__(self):
        self.levels = []
        self.mode = None  # a mode that is to see what rules call


_stack = _Stack()


@contextlib.contextmanager
def rules_within(mode):
    """In this block a call on examples is handed to its rule with the mode on: a mode itself runs with the mode off."""
    before, _stack.mode = _stack.mode, mode
    try:
        yield
    finally:
        _stack.mode = before


def active_levels():
    """The levels of the vmaps that are running on this thread, the outermost first."""
    return _stack.levels


class BatchedTensor(Tensor):
    """One example of a batch, as a function under vmap sees it."""

    _values_are_plain = True  # for Tensor's methods that return a value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if _stack.mode is not None:
            with _stack.mode:
                return dispatch(func, args, kwargs or {})
        return dispatch(func, args, kwargs or {})

    __hash__ = Tensor.__hash__

    # Methods that Tensor answers without asking __torch_function__.
    def item(self):
        raise DataDependent(_ITEM)

    tolist = numpy = __array__ = __float__ = __int__ = __index__ = __complex__ = __dlpack__ = item

    def __bool__(self):
        raise DataDependent(_BRANCH)

    is_nonzero = __bool__

    def type(self, dtype=None, non_blocking=False):
        return self._batch_value.type() if dtype is None else wrap(self._batch_value.type(dtype), self._batch_level)

    def detach_(self):
        self._batch_value.detach_()
        return self

    def retain_grad(self):
        self._batch_value.retain_grad()

    def register_hook(self, hook):
        level = self._batch_level

        def on_values(gradient):
            changed = hook(None if gradient is None else wrap(gradient, level))
            return changed._batch_value if is_batched(changed, level) else changed

        return self._batch_value.register_hook(on_values)

    def __deepcopy__(self, memo):
        return wrap(self._batch_value.clone(), self._batch_level)

    def __reduce_ex__(self, protocol):
        raise RuntimeError("a tensor under vmap cannot be pickled: it is one example of a batch only while vmap runs")


def wrap(value, level):
    """The example that stands for `value`, a batch along its first dimension."""
    plain = value
    depth = 0
    while type(plain) is BatchedTensor:
        plain = plain._batch_value
        depth += 1
    if _C._len_torch_dispatch_stack() or _C._len_torch_function_stack():
        from mica.utils._python_dispatch import _disable_current_modes

        with _C.DisableTorchFunction(), _disable_current_modes():  # making the shell is not an operation of the program
            example = _shell(plain, depth + 1)
    else:
        example = _shell(plain, depth + 1)
    example._batch_value = value
    example._batch_level = level
    return example


def _shell(plain, depth):
    """A view of the first example: it has the shape and costs nothing."""
    shell = plain.detach()
    for _ in range(depth):
        shell = shell.select(0, 0) if shell.size(0) else shell.new_zeros(shell.shape[1:])
    return shell.as_subclass(BatchedTensor)


def given(example):
    """(tensor, dimension) that an example is taken from: the tensor that vmap was given, as long as the example still has its
    values, and otherwise the values of all examples."""
    value = example._batch_value
    source, dim, placed = getattr(example, "_batch_source", (None, 0, None))
    return (source, dim) if source is not None and placed is value and value.dim() == source.dim() else (value, 0)


def is_batched(x, level):
    return type(x) is BatchedTensor and x._batch_level is level


class Call:
    """A call on examples of one level: what a rule works with."""

    __slots__ = ("args", "func", "kwargs", "level", "name")

    def __init__(self, func, name, args, kwargs, level):
        self.func, self.name, self.args, self.kwargs, self.level = func, name, args, kwargs, level

    @property
    def size(self):
        return self.level.size

    def is_batched(self, x):
        return type(x) is BatchedTensor and x._batch_level is self.level

    def value(self, x):
        """The batch of an example; anything else as it is."""
        return x._batch_value if type(x) is BatchedTensor and x._batch_level is self.level else x

    def full(self, x):
        """The batch of an example; the batch of equal examples of another tensor."""
        if self.is_batched(x):
            return x._batch_value
        return x.expand(self.size, *x.shape) if isinstance(x, Tensor) else x

    def argument(self, position, name, default=None):
        """An argument given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def rest(self, start=1):
        return self.args[start:]


def levels_in(arguments, found):
    """The deepest level among arguments and in their lists, or `found`."""
    for x in arguments:
        kind = type(x)
        if kind is BatchedTensor:
            if found is None or x._batch_level.depth > found.depth:
                found = x._batch_level
        elif kind is list or kind is tuple:
            found = levels_in(x, found)
    return found


of_operator = None  # set by _batched_autograd: an operator of a program's own by the rule that was registered for it


def dispatch(func, args, kwargs):
    func = getattr(func, "op", func)  # of an OpOverload of a program's own; those of torch have called their functions
    name = own_name(func)
    if name == "__get__":
        return _attribute(func.__self__.__name__, args[0])
    if name == "__set__":
        return _set_attribute(func.__self__.__name__, args[0], args[1])
    level = levels_in(args, None)
    if kwargs:
        level = levels_in(kwargs.values(), level)
    if level is None:  # an example is among the types, or in a place where no rule looks
        return func(*args, **kwargs)
    if kwargs.get("out") is not None:
        raise RuntimeError(f"vmap: {name}(..., out=) is not possible: the results of all examples do not fit in one")
    call = Call(func, name, args, kwargs, level)
    if getattr(func, "qualified_name", None) is not None and func.vmap is not None:
        return of_operator(func, call)
    function = rule_for(func, name)
    if function is not None:
        result = function(call)
        if result is not NotImplemented:
            return wrap_all(result, level)
    return through_examples(call)


def wrap_all(result, level):
    kind = type(result)
    if kind is Plain:
        return result.value
    if isinstance(result, Tensor):
        return wrap(result, level)
    if kind is tuple or kind is list:
        return kind(wrap_all(x, level) for x in result)
    if isinstance(result, tuple):  # a named one
        parts = [wrap_all(x, level) for x in result]
        return kind(*parts) if hasattr(kind, "_make") else kind(parts)
    return result


def _picked(x, level, i):
    if type(x) is BatchedTensor and x._batch_level is level:
        value = x._batch_value
        return value.select(0, i) if value.size(0) else value.new_zeros(value.shape[1:])
    if type(x) is list or type(x) is tuple:
        return type(x)(_picked(y, level, i) for y in x)
    return x


def changes_first(name):
    """Whether a method of this name changes the tensor that it is called on."""
    return name == "__setitem__" or (
        (name.endswith("_") and not name.endswith("__"))
        or (name.startswith("__i") and name not in ("__invert__", "__int__", "__index__", "__iter__"))
    )


def check_first_is_batched(call):
    if not call.is_batched(call.args[0]):
        raise RuntimeError(
            f"vmap: {call.name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
            "that has more elements than `self`. This happened due to `other` being vmapped over but `self` not being "
            "vmapped over in a vmap. Please try to use out-of-place operators instead of "
            f"{call.name}. If said operator is being called inside the PyTorch framework, please file a bug report "
            "instead."
        )
    call.level.changed = True


_without_rules = [True]  # whether operations without a rule are called for one example after the other


def _is_vmap_fallback_enabled():
    """Whether vmap calls operations that have no rule for one example after the other."""
    return _without_rules[0]


def _set_vmap_fallback_enabled(enabled):
    """Let vmap refuse operations that have no rule, or call them for one example after the other, as it does at first."""
    _without_rules[0] = bool(enabled)


def through_examples(call):
    """The call for one example after the other, and the results stacked."""
    import mica

    if not _without_rules[0]:
        raise RuntimeError(f"aten::{call.name} hit the vmap fallback which is currently disabled")
    changes = changes_first(call.name)
    if changes:
        check_first_is_batched(call)
    results = []
    for i in range(max(call.size, 1)):
        args = [_picked(x, call.level, i) for x in call.args]
        kwargs = {name: _picked(x, call.level, i) for name, x in call.kwargs.items()}
        results.append(call.func(*args, **kwargs))
    if changes:
        return call.args[0] if call.name != "__setitem__" else None
    return _joined(mica, results, call)


def _joined(mica, column, call):
    first = column[0]
    if isinstance(first, Tensor):
        if any(x.shape != first.shape for x in column):
            raise RuntimeError(
                f"vmap: {call.name} gave results of different shapes for different examples, which cannot be stacked"
            )
        stacked = mica.stack(column)
        return wrap(stacked if call.size else stacked.narrow(0, 0, 0), call.level)
    if isinstance(first, (tuple, list)):
        parts = [_joined(mica, part, call) for part in zip(*column, strict=True)]
        kind = type(first)
        if kind in (tuple, list) or not hasattr(kind, "_make"):
            return kind(parts)
        return kind(*parts)
    if all(x == first for x in column):
        return first
    raise DataDependent(
        f"vmap: {call.name} gave different results for different examples. We don't support that: a function under vmap "
        "runs on all examples at once"
    )


# ------------------------------------------------------------------------------------------------ attributes
def _attribute(name, x):
    value, level = x._batch_value, x._batch_level
    if name == "shape":
        return value.shape[1:]
    if name == "ndim":
        return value.dim() - 1
    if name in ("mT", "mH", "real", "imag", "data"):
        if name in ("mT", "mH") and value.dim() < 3:
            raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
        return wrap(getattr(value, name), level)
    if name in ("T", "H"):
        turned = value.permute(0, *range(value.dim() - 1, 0, -1))
        return wrap(turned.conj() if name == "H" else turned, level)
    if name in ("grad", "_grad"):
        found = value.grad
        return None if found is None else wrap(found, level)
    if name == "nbytes":
        return x.numel() * value.element_size()
    return getattr(value, name)


def _values(x, level):
    """The values of all examples. A tensor that is not batched is copied for each example."""
    if is_batched(x, level) or not isinstance(x, Tensor):
        return getattr(x, "_batch_value", x)
    return x.expand(level.size, *x.shape).clone(memory_format=_C.contiguous_format)


def _set_attribute(name, x, new):
    if name == "requires_grad":
        x._batch_value.requires_grad = new
    elif name == "data":
        x._batch_value.data = _values(new, x._batch_level)
        x._batch_source = (None, 0, None)
        x._batch_level.changed = True
    elif name == "grad":
        x._batch_value.grad = _values(new, x._batch_level)
    else:
        raise RuntimeError(f"vmap: the attribute {name} of a tensor cannot be set while vmap runs")
