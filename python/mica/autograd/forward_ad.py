"""Derivatives along with values: tensors that carry a tangent while a level is open.

    with forward_ad.dual_level():
        x = forward_ad.make_dual(primal, tangent)
        value, derivative = forward_ad.unpack_dual(f(x))

A dual tensor is an input of the graph, whose tangent is remembered with the level. `unpack_dual` asks the graph for the
product of the Jacobian with the tangents: the derivative, by the vector, of the vector times the Jacobian. So everything
that can be differentiated twice backwards can be differentiated forwards, and forwards over backwards. While a level is
open, operations are recorded even within no_grad.
"""

import collections
import threading

from mica import _C
from mica.autograd import grad_mode
from mica.autograd.function import Function

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

UnpackedDualTensor = collections.namedtuple("UnpackedDualTensor", ["primal", "tangent"])


class _Level:
    def __init__(self):
        self.duals, self.tangents = [], []
        self.recorded = _C._exchange_grad_enabled(True)
        self.no_grad = 0  # blocks of no_grad within the level that are open


class _State(threading.local):
    def __init__(self):
        self.levels = []
        self.enabled, self.recorded = True, []


_state = _State()
_open = 0  # levels of all threads


def __getattr__(name):
    if name == "_current_level":
        return len(_state.levels) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ------------------------------------------------------------------------------------------------ no_grad meanwhile
def _enter_no_grad(self):
    if _state.levels:
        _state.levels[-1].no_grad += 1
        return None
    return _C._NoGrad.__enter__(self)


def _exit_no_grad(self, *exception):
    if _state.levels:
        _state.levels[-1].no_grad -= 1
        return None
    return _C._NoGrad.__exit__(self, *exception)


def _record_within_no_grad(wanted):
    """Let no_grad look at open levels, or no longer. It does so only while there are some, so that it costs nothing
    otherwise."""
    if wanted:
        grad_mode.no_grad.__enter__, grad_mode.no_grad.__exit__ = _enter_no_grad, _exit_no_grad
    else:
        del grad_mode.no_grad.__enter__, grad_mode.no_grad.__exit__


# ------------------------------------------------------------------------------------------------ levels
def enter_dual_level():
    """Open a level, and return its number."""
    global _open
    if _state.levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _state.levels.append(_Level())
    _open += 1
    if _open == 1:
        _record_within_no_grad(True)
        _C._set_dual_parts(_printed_parts)
    return len(_state.levels) - 1


def exit_dual_level(*, level=None):
    """Close the level: its tangents are gone."""
    global _open
    last = len(_state.levels) - 1
    level = last if level is None else level
    if level != last or level < 0:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _C._set_grad_enabled(_state.levels.pop().recorded)
    _open -= 1
    if _open == 0:
        _record_within_no_grad(False)
        _C._set_dual_parts(None)


class dual_level:
    """A level for the time of a block."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with dual_level():
                return function(*args, **kwargs)

        return wrapped


def _level(level):
    levels = _state.levels
    level = len(levels) - 1 if level is None else level
    return levels[level] if 0 <= level < len(levels) else None


class _Dual(Function):
    """Gives a tensor the graph's input `root` as its history, in place, so that the dual tensor has the tensor's memory."""

    @staticmethod
    def forward(ctx, root, memory):
        ctx.mark_dirty(memory)
        return memory

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def make_dual(tensor, tangent, *, level=None):
    """The tensor with a tangent, for operations within the level. It shares the tensor's memory."""
    opened = _level(level)
    if opened is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, given in (("primal", tensor), ("tangent", tangent)):
        if not (given.is_floating_point() or given.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {given.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(
            f"Trying to set a forward gradient of dtype {tangent.dtype} on a tensor of dtype {tensor.dtype}: they differ"
        )
    if unpack_dual(tangent).tangent is not None:
        raise RuntimeError(
            "Trying to set a forward gradient that has a forward gradient at the same level. This is not supported."
        )
    if _lies_otherwise(tensor, tangent):
        import mica

        tangent = mica.empty_strided(tensor.shape, tensor.stride(), dtype=tangent.dtype, device=tangent.device).copy_(
            tangent
        )
    opened.tangents.append(tangent)
    if tensor.requires_grad or type(tensor) is not _C.Tensor:
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
        opened.duals.append(dual)
        return dual
    # The graph's input is a tensor that no program sees, so that the dual can be changed in place.
    opened.duals.append(tensor.detach().requires_grad_())
    if tensor.is_inference():  # it does not count its changes
        return _Dual.apply(opened.duals[-1], tensor.data)
    version = tensor._version
    dual = _Dual.apply(opened.duals[-1], tensor.detach())
    _C._set_version(dual, version)  # changes of either count for both, and this is not a change
    return dual


def _lies_otherwise(tensor, tangent):
    """Whether a tangent is kept as a copy: it has another lazy sign than its tensor, or its memory another extent."""
    if type(tensor) is not _C.Tensor or type(tangent) is not _C.Tensor or tensor.layout is not _C.strided:
        return False
    if tensor.is_conj() != tangent.is_conj() or tensor.is_neg() != tangent.is_neg():
        return True
    same = tensor.stride() == tangent.stride() and tensor.storage_offset() == tangent.storage_offset()
    return same and tensor.untyped_storage().nbytes() != tangent.untyped_storage().nbytes()


def unpack_dual(tensor, *, level=None):
    """The value and the tangent of a tensor; None where it has none. Without an open level there are no tangents."""
    opened = _level(level)
    if opened is None or not opened.duals or not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    from mica.func._transforms import pushed_or_none, reaches_outside

    attached = opened.recorded and opened.no_grad <= 0
    attached = attached and (reaches_outside((tensor,), opened.duals) or any(t.requires_grad for t in opened.tangents))
    tangent = pushed_or_none(tensor, opened.duals, opened.tangents, create=attached)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    if type(tensor.grad_fn).__name__ == "CopyBackwards" and any(tangent is each for each in opened.tangents):
        tangent = tangent.clone()  # a copy of a dual tensor has a tangent of its own
    return UnpackedDualTensor(tensor if attached else tensor.detach(), tangent)


def _printed_parts(tensor):
    """The printed text of a dual tensor: its value, and its tangent behind it; None for another tensor."""
    if not _state.levels:
        return None
    primal, tangent = unpack_dual(tensor)
    return None if tangent is None else (primal, f"tangent={tangent.detach()}")


# ------------------------------------------------------------------------------------------------ switched off
def _is_fwd_grad_enabled():
    """Whether operations hand tangents on."""
    return _state.enabled


def _switch(enabled):
    """Let operations pass tangents on, or not. Where they do not, a level or a transform records nothing."""
    before, _state.enabled = _state.enabled, enabled
    if before == enabled or not (_state.levels or _C._are_functorch_transforms_active()):
        return
    if enabled:
        _C._exchange_grad_enabled(_state.recorded.pop() if _state.recorded else True)
    else:
        _state.recorded.append(_C._exchange_grad_enabled(False))


class _set_fwd_grad_enabled:
    """Within a `with` block, operations hand tangents on, or not."""

    def __init__(self, mode):
        self.prev = _is_fwd_grad_enabled()
        _switch(mode)

    def __enter__(self):
        return None

    def __exit__(self, *exception):
        _switch(self.prev)
