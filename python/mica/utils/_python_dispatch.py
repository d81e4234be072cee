"""__torch_dispatch__: torch's second way of taking calls over. Mica has it for classes, not for modes."""


class TorchDispatchMode:
    """Would see every operation below autograd in a with block: torch.overrides.TorchFunctionMode sees calls."""

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key=None):
        """Makes the mode; arguments are ignored."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        raise NotImplementedError(
            "TorchDispatchMode is not in Mica: torch.overrides.TorchFunctionMode sees every call of a function"
        )

    def __exit__(self, *exception):
        """Does nothing: such a mode is never entered."""


def is_traceable_wrapper_subclass(t):
    """Whether a tensor is made of other tensors, and says how: __tensor_flatten__ and __tensor_unflatten__."""
    return is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t):
    """The same of a class."""
    from mica import Tensor

    has = hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
    return issubclass(t, Tensor) and t is not Tensor and has


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """The tensor made of other parts: callback(name, part) for each."""
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(parts, context, size, stride)


def _get_current_dispatch_mode():
    """The current mode: always None, since Mica has no dispatch modes."""


def _get_current_dispatch_mode_stack():
    return []


def _disable_current_modes():
    import contextlib

    return contextlib.nullcontext()


def return_and_correct_aliasing(func, args, kwargs, out):
    return out
