"""The memory of storages as buffers of Python, without NumPy."""

import ctypes


def view_of(storage):
    """The bytes of a storage on the CPU, read and written in place. The caller keeps the storage alive."""
    if not storage.nbytes():
        return memoryview(bytearray())
    return memoryview((ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())).cast("B")
