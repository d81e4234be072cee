"""__torch_dispatch__: torch's second way of taking calls over, below autograd. Mica has the first, __torch_function__."""


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
    """Whether a tensor is made of other tensors (__tensor_flatten__): none is."""
    return False


def is_traceable_wrapper_subclass_type(t):
    return False


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    raise NotImplementedError("tensors that are made of other tensors (__tensor_flatten__) are not in Mica")


def _get_current_dispatch_mode():
    """The current mode: always None, since Mica has no dispatch modes."""


def _get_current_dispatch_mode_stack():
    return []


def _disable_current_modes():
    import contextlib

    return contextlib.nullcontext()


def return_and_correct_aliasing(func, args, kwargs, out):
    return out
