"""Switches that torch's programs flip: determinism, matmul precision, threads, the default tensor type."""

from mica import _C
from mica._functions.once import warn_once

__all__ = [
    "are_deterministic_algorithms_enabled",
    "compiled_with_cxx11_abi",
    "get_deterministic_debug_mode",
    "get_device_module",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_default_tensor_type",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_num_interop_threads",
    "set_warn_always",
    "typename",
    "use_deterministic_algorithms",
]

_deterministic = False
_warn_only = False
_fill_uninitialized_memory = True
_interop_threads = None


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Ask for results that repeat. Operations of Mica on the CPU do anyway; those that torch refuses then are refused or
    warned of. On CUDA, attention then takes slower kernels."""
    global _deterministic, _warn_only
    for name, given in (("'mode' (position 1)", mode), ("'warn_only'", warn_only)):
        if not isinstance(given, bool):
            raise TypeError(
                f"_set_deterministic_algorithms(): argument {name} must be bool, not {type(given).__name__}"
            )
    _deterministic, _warn_only = mode, warn_only
    _C._set_determinism(mode, warn_only)
    _C._set_fill_uninitialized(_deterministic and _fill_uninitialized_memory)
    if _C._device_count("cuda") > 0:
        _C._set_backend_flag("cuda", "deterministic", _deterministic)


def are_deterministic_algorithms_enabled():
    """Whether results that repeat were asked for."""
    return _deterministic


def is_deterministic_algorithms_warn_only_enabled():
    """Whether an operation that cannot repeat itself is to warn rather than fail."""
    return _warn_only


_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def set_deterministic_debug_mode(debug_mode):
    """Ask for repeatable results by level: 0 "default", 1 "warn", 2 "error"."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = _DEBUG_MODES[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode():
    """The level at which repeatable results were asked for."""
    return (1 if _warn_only else 2) if _deterministic else 0


def set_float32_matmul_precision(precision):
    """Allow matrix products of float32 to be computed with fewer bits: on CUDA "high" and "medium" round the inputs to TF32."""
    if precision not in ("highest", "high", "medium"):
        import warnings

        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call "
            "has no effect.",
            stacklevel=2,
        )
        return
    from mica.backends import _precision

    _precision.set_products(precision)


def get_float32_matmul_precision():
    """The precision allowed for matrix products of float32."""
    from mica.backends import _precision

    return _precision.products()


def get_num_interop_threads():
    """How many operations may run at once. Mica runs one at a time, on all its threads."""
    return _interop_threads or _C.get_num_threads()


def set_num_interop_threads(count):
    """Set how many operations may run at once; kept for programs that ask for it back."""
    global _interop_threads
    if not isinstance(count, int):
        raise RuntimeError(f"set_num_interop_threads expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    if count >= 2**31:
        raise ValueError("Overflow when unpacking long long")
    _interop_threads = count


def set_warn_always(on):
    """Have the warnings that are given only once in a process given every time."""
    _C._set_warn_always(on)


def is_warn_always_enabled():
    """Whether the warnings that are given only once are given every time."""
    return _C._is_warn_always()


def compiled_with_cxx11_abi():
    """Whether the engine uses the C++11 ABI of the standard library; it does."""
    return True


def typename(obj):
    """The name of an object's type, "torch.FloatTensor" for a tensor."""
    if isinstance(obj, _C.Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", None) or ""
    return kind.__qualname__ if module in ("", "builtins") else f"{module}.{kind.__qualname__}"


def set_default_tensor_type(t):
    """Set the default dtype and device by the name or the class of a tensor type."""
    from mica._as_torch import legacy_types as _legacy_types

    warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives.",
        stacklevel=2,
    )
    kind = _legacy_types.by_name(t) if isinstance(t, str) else t
    if not isinstance(kind, _legacy_types.tensortype):
        raise TypeError(
            "invalid type object: only floating-point types are supported as the default type, such as "
            f"torch.FloatTensor, but got {t!r}; a dtype is set by torch.set_default_dtype"
        )
    if kind.is_cuda:
        kind.check_there()
    _C.set_default_dtype(kind.dtype)
    _C._set_tensor_type_device("cuda" if kind.is_cuda else "cpu")


def get_device_module(device=None):
    """The module of a device's functions: mica.cuda for "cuda"; without a device, that of the accelerator, or mica.cpu."""
    import importlib

    if device is None:
        from mica import accelerator

        device = accelerator.current_accelerator() or "cpu"
    kind = _C.device(device).type
    try:
        return importlib.import_module(f"mica.{kind}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'."
        ) from None
