"""torch.cuda.gds and green contexts: what they say without a GPU, and the calls that they make."""

import ctypes
import os

import mica
import pytest
from mica.cuda import gds, green_contexts


class FakeLibrary:
    """cuFile's functions over the CPU's memory."""

    def __init__(self):
        self.calls, self.files = [], {}

    def cuFileHandleRegister(self, handle, description):
        made = description._obj
        assert (made.type, made.fs_ops, ctypes.sizeof(made)) == (1, None, 24)
        handle._obj.value = 1000 + made.fd
        self.files[1000 + made.fd] = made.fd
        return gds._Error(0, 0)

    def cuFileHandleDeregister(self, handle):
        del self.files[handle]

    def cuFileBufRegister(self, address, size, flags):
        self.calls.append((address.value, size.value, flags))
        return gds._Error(0, 0)

    def cuFileBufDeregister(self, address):
        return gds._Error(5001, 0)

    def cuFileWrite(self, handle, address, size, offset, _):
        return os.pwrite(self.files[handle], ctypes.string_at(address, size), offset)

    def cuFileRead(self, handle, address, size, offset, _):
        data = os.pread(self.files[handle], size, offset)
        ctypes.memmove(address, data, len(data))
        return len(data)


@pytest.fixture
def library(monkeypatch):
    made = FakeLibrary()
    monkeypatch.setattr(gds, "_library", lambda: made)
    monkeypatch.setattr(os, "O_DIRECT", 0)  # the fake reads with the system's cache
    return made


def test_storages_go_to_a_file_and_back(library, tmp_path):
    x = mica.arange(6.0)
    file = gds.GdsFile(str(tmp_path / "weights"), os.O_CREAT | os.O_RDWR)
    file.save_storage(x.untyped_storage(), offset=8)
    y = mica.zeros(6)
    file.load_storage(y.untyped_storage(), offset=8)
    assert y.equal(x)
    with pytest.raises(RuntimeError, match="cuFileRead failed: 16 of 24 bytes were moved"):
        file.load_storage(y.untyped_storage(), offset=16)
    with pytest.raises(RuntimeError, match="Cannot register a handle that is already registered"):
        file.register_handle()
    file.deregister_handle()
    with pytest.raises(RuntimeError, match="not registered"):
        file.save_storage(x.untyped_storage())
    gds.gds_register_buffer(x.untyped_storage())
    assert library.calls == [(x.data_ptr(), 24, 0)] and not library.files
    with pytest.raises(RuntimeError, match="cuFileBufDeregister failed: cuFile error 5001"):
        gds.gds_deregister_buffer(x.untyped_storage())


def test_without_the_library_nothing_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(gds, "_library", lambda: None)
    path = tmp_path / "weights"
    with pytest.raises(RuntimeError, match="torch._C._gds_register_handle is not supported on this platform"):
        gds.GdsFile(str(path), os.O_CREAT | os.O_RDWR)
    assert not path.exists()
    with pytest.raises(RuntimeError, match="torch._C._gds_register_buffer is not supported on this platform"):
        gds.gds_register_buffer(mica.ones(2).untyped_storage())


def test_green_contexts_without_a_gpu():
    assert mica.cuda.green_contexts.GreenContext is mica.cuda.GreenContext is green_contexts.GreenContext
    with pytest.raises(NotImplementedError, match="queues of work are not parted"):
        green_contexts.GreenContext.create(num_sms=8, workqueue_scope="device_ctx")
    with pytest.raises(RuntimeError, match="say how many multiprocessors"):
        green_contexts.GreenContext.create()
    with pytest.raises(RuntimeError, match="not made by GreenContext.create"):
        green_contexts.GreenContext().set_context()
    if not mica.cuda.is_available():
        with pytest.raises(RuntimeError, match="need a CUDA device"):
            green_contexts.GreenContext.create(num_sms=8)
