"""Autocast: operations choose the precision they run in. The lists are in ops/modes/autocast.toml."""

import functools
import warnings
from collections.abc import Iterable, Mapping

from mica import _C

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_DEVICES = ("cpu", "cuda")
# Device types on which torch casts. Autocast can be switched there and changes nothing, because no tensor is there.
_NAMED = ("mps", "xpu", "xla", "hpu", "ipu", "mtia", "maia", "privateuseone")


def is_autocast_available(device_type):
    """Whether autocast knows the type of device."""
    return _C.device(device_type).type in (*_DEVICES, *_NAMED)


def _checked(device_type):
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    return device_type


class autocast:
    """Run a block or a function in mixed precision: as a context manager or as a decorator.

    Products and convolutions in it run in `dtype`, operations that need the range of float32 run in float32, and the
    others in the dtype of what they are given.

    Args:
        device_type: "cpu" or "cuda", or the type of another device
        dtype: the narrow dtype; by default bfloat16 on the CPU and float16 on CUDA
        enabled: False runs the block as if it were not there
        cache_enabled: whether the casts of weights are kept until the block ends

    Example::

        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        loss.backward()
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        self.device = _checked(device_type)
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.fast_dtype = _C.get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = _C.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled) and self._is_usable()
        self._before = []

    def _is_usable(self):
        if self.device == "cuda" and not _C._device_count("cuda"):
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=3)
            return False
        if self.fast_dtype not in (_C.bfloat16, _C.float16):
            name = self.device.upper()
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                stacklevel=3,
            )
            return False
        return True

    def __enter__(self):
        self._before.append(
            (_C.is_autocast_enabled(self.device), _C.get_autocast_dtype(self.device), _C.is_autocast_cache_enabled())
        )
        _C.set_autocast_enabled(self.device, self._enabled)
        _C.set_autocast_dtype(self.device, self.fast_dtype)
        _C.autocast_increment_nesting()
        _C.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *exception):
        enabled, dtype, cached = self._before.pop()
        _C.autocast_decrement_nesting()
        _C.set_autocast_enabled(self.device, enabled)
        _C.set_autocast_dtype(self.device, dtype)
        _C.set_autocast_cache_enabled(cached)
        return False

    def __call__(self, function):
        if not callable(function):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(function).__name__}: a function is decorated, and "
                "what lies in a `with` block is cast"
            )

        @functools.wraps(function)
        def cast(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return cast


def _enter_autocast(*arguments):
    mode = autocast(*arguments)
    mode.__enter__()
    return mode


def _exit_autocast(mode):
    mode.__exit__(None, None, None)


def _cast(value, device_type, dtype):
    """The value with every floating-point tensor of the device in it, float64 apart, cast."""
    if isinstance(value, _C.Tensor):
        casts = value.is_floating_point() and value.device.type == device_type and value.dtype != _C.float64
        return value.to(dtype) if casts else value
    if isinstance(value, (str, bytes)) or type(value).__module__ == "numpy":
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = [_cast(v, device_type, dtype) for v in value]
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorate the forward of an autograd.Function: with `cast_inputs` it runs on cast inputs and without autocast."""
    _checked(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args, **kwargs):
        context, enabled = args[0], _C.is_autocast_enabled(device_type)
        context._dtype = _C.get_autocast_dtype(device_type)
        context._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd=None, *, device_type):
    """Decorate the backward of an autograd.Function: it runs under the autocast that its forward ran under."""
    _checked(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return backward


def _of(device_type):
    """torch's older functions for one type of device: is enabled, set enabled, get dtype, set dtype."""
    return (
        lambda: _C.is_autocast_enabled(device_type),
        lambda enabled: _C.set_autocast_enabled(device_type, enabled),
        lambda: _C.get_autocast_dtype(device_type),
        lambda dtype: _C.set_autocast_dtype(device_type, dtype),
    )


is_autocast_cpu_enabled, set_autocast_cpu_enabled, get_autocast_cpu_dtype, set_autocast_cpu_dtype = _of("cpu")
_, _, get_autocast_gpu_dtype, set_autocast_gpu_dtype = _of("cuda")
