"""GPUDirect Storage: between files and a GPU's memory without the CPU's, through NVIDIA's library cuFile.

file = GdsFile("weights", os.O_RDWR)
file.load_storage(tensor.untyped_storage(), offset=0)
"""

import contextlib
import ctypes
import functools
import os

__all__ = ["GdsFile", "gds_deregister_buffer", "gds_register_buffer"]


class _Error(ctypes.Structure):
    """CUfileError_t: cuFile's own number, and the driver's."""

    _fields_ = (("err", ctypes.c_int), ("cu_err", ctypes.c_int))


class _Description(ctypes.Structure):
    """CUfileDescr_t for a file of the system: a kind, a descriptor in eight bytes, and no table of functions."""

    _fields_ = (("type", ctypes.c_int), ("fd", ctypes.c_int64), ("fs_ops", ctypes.c_void_p))


_FILE_DESCRIPTOR = 1
_STATUS = ("cuFileDriverOpen", "cuFileHandleRegister", "cuFileBufRegister", "cuFileBufDeregister")


@functools.cache
def _library():
    """cuFile with its driver open, or None."""
    for name in ("libcufile.so.0", "libcufile.so", "/usr/local/cuda/lib64/libcufile.so.0"):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            break
    else:
        return None
    for name in _STATUS:
        getattr(library, name).restype = _Error
    for name in ("cuFileRead", "cuFileWrite"):
        function = getattr(library, name)
        function.restype = ctypes.c_ssize_t
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64)
    library.cuFileHandleDeregister.argtypes = (ctypes.c_void_p,)
    _check(library.cuFileDriverOpen(), "cuFileDriverOpen")
    return library


def _check(status, call):
    if status.err:
        raise RuntimeError(f"{call} failed: cuFile error {status.err}, driver error {status.cu_err}")


def _cufile(name):
    library = _library()
    if library is None:
        raise RuntimeError(f"torch._C._gds_{name} is not supported on this platform: libcufile.so.0 cannot be opened")
    return library


def _untyped(storage):
    return getattr(storage, "_untyped_storage", storage)


def gds_register_buffer(s):
    """Make a storage's memory known to cuFile, which makes repeated copies faster."""
    library, storage = _cufile("register_buffer"), _untyped(s)
    status = library.cuFileBufRegister(ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes()), 0)
    _check(status, "cuFileBufRegister")


def gds_deregister_buffer(s):
    """Undo gds_register_buffer."""
    library = _cufile("deregister_buffer")
    _check(library.cuFileBufDeregister(ctypes.c_void_p(_untyped(s).data_ptr())), "cuFileBufDeregister")


class GdsFile:
    """A file that storages are loaded from and saved to. It is opened without the system's cache (O_DIRECT)."""

    def __init__(self, filename, flags):
        self.filename, self.flags, self.handle = filename, flags, None
        _cufile("register_handle")  # before a file is made
        self.fd = os.open(filename, flags | os.O_DIRECT, 0o664)
        try:
            self.register_handle()
        except BaseException:
            os.close(self.fd)
            raise

    def __del__(self):
        if getattr(self, "handle", None) is not None:
            self.deregister_handle()
            os.close(self.fd)

    def register_handle(self):
        """Make the file known to cuFile."""
        if self.handle is not None:
            raise RuntimeError("Cannot register a handle that is already registered.")
        handle, description = ctypes.c_void_p(), _Description(_FILE_DESCRIPTOR, self.fd, None)
        library = _cufile("register_handle")
        _check(library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(description)), "cuFileHandleRegister")
        self.handle = handle.value

    def deregister_handle(self):
        """Undo register_handle."""
        if self.handle is None:
            raise RuntimeError("Cannot deregister a handle that is not registered.")
        _cufile("deregister_handle").cuFileHandleDeregister(self.handle)
        self.handle = None

    def _move(self, name, storage, offset):
        if self.handle is None:
            raise RuntimeError("Cannot use a file whose handle is not registered.")
        storage = _untyped(storage)
        wanted, function = storage.nbytes(), getattr(_cufile(name), name)
        done = function(self.handle, storage.data_ptr(), wanted, offset, 0)
        if done != wanted:
            raise RuntimeError(f"{name} failed: {done} of {wanted} bytes were moved")

    def load_storage(self, storage, offset=0):
        """Read the bytes of a storage from a place of the file."""
        self._move("cuFileRead", storage, offset)

    def save_storage(self, storage, offset=0):
        """Write the bytes of a storage to a place of the file."""
        self._move("cuFileWrite", storage, offset)
