"""torch.cuda.cudart(): the few calls of CUDA's runtime that programs make themselves, through the driver's library."""

import ctypes

from mica import _C


class cudaStatus:
    """Results of a call."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


class CudaError(RuntimeError):
    """A call of CUDA that failed."""

    def __init__(self, code):
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(int(code), ctypes.byref(text))
        super().__init__(f"{(text.value or b'unknown error').decode()} ({int(code)})")


class DeferredCudaCallError(Exception):
    """A call that was put off until CUDA started, and failed then."""


def check_error(res):
    """Raise the error that a result stands for."""
    if int(res) != cudaStatus.SUCCESS:
        raise CudaError(res)


_library = None


def _driver():
    global _library
    if _library is None:
        _library = ctypes.CDLL("libcuda.so.1")
    return _library


class cudaError(int):
    """A result as a number that has a name for success."""

    success = 0


class _Runtime:
    """Functions of the runtime by their names; each returns its status."""

    cudaError = cudaError

    def cudaGetErrorString(self, error):
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(int(error), ctypes.byref(text))
        return (text.value or b"unknown error").decode()

    def cudaProfilerStart(self):
        return cudaError(_driver().cuProfilerStart())

    def cudaProfilerStop(self):
        return cudaError(_driver().cuProfilerStop())

    def cudaHostRegister(self, ptr, size, flags):
        return cudaError(
            _driver().cuMemHostRegister_v2(ctypes.c_void_p(ptr), ctypes.c_size_t(size), ctypes.c_uint(flags))
        )

    def cudaHostUnregister(self, ptr):
        return cudaError(_driver().cuMemHostUnregister(ctypes.c_void_p(ptr)))

    def cudaStreamCreate(self, ptr):
        return cudaError(_driver().cuStreamCreate(ctypes.c_void_p(ptr), 0))

    def cudaStreamDestroy(self, handle):
        return cudaError(_driver().cuStreamDestroy_v2(ctypes.c_void_p(handle)))

    def cudaMemGetInfo(self, device=None):
        from mica.cuda import mem_get_info

        return mem_get_info(device)


def cudart():
    """The runtime's functions, with CUDA started."""
    _C._synchronize("cuda")  # this makes the device's context current in this thread
    return _Runtime()
