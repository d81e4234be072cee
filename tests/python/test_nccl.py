"""torch.cuda.nccl without a GPU: what is refused, and what is said where NCCL is missing. tests/cuda runs it."""

import ctypes

import mica as torch
import pytest
from mica.cuda import nccl


@pytest.fixture
def without(monkeypatch):
    monkeypatch.setattr(nccl, "_library", lambda: None)


def test_where_nccl_is_missing(without):
    with pytest.warns(UserWarning, match="NCCL is not installed"):
        assert not nccl.is_available([torch.ones(2)])
    for call in (nccl.version, nccl.unique_id):
        with pytest.raises(RuntimeError, match="nvidia-nccl"):
            call()


def test_what_is_refused():
    x = torch.ones(2)
    with pytest.raises(TypeError, match="collection of tensors"):
        nccl.all_reduce(x)
    for call in (nccl.all_reduce, nccl.broadcast, nccl.reduce):
        with pytest.raises(RuntimeError, match="CUDA tensors"):
            call([x])
    with pytest.raises(RuntimeError, match="as many outputs"):
        nccl.all_gather([x], [])
    with pytest.raises(ValueError, match="both specified"):
        nccl.reduce([x], x, outputs=[x])


class _Library:
    """Stands for NCCL's own, and says 2.27.3."""

    def ncclGetVersion(self, code):
        code._obj.value = 22703
        return 0

    def ncclGetUniqueId(self, name):
        ctypes.memmove(ctypes.addressof(name._obj), bytes(range(128)), 128)
        return 0

    def ncclGroupStart(self):
        return 3

    class _Text:
        restype = None

        def __call__(self, status):
            return b"internal error"

    ncclGetErrorString = _Text()


def test_what_the_library_says(monkeypatch):
    monkeypatch.setattr(nccl, "_library", _Library)
    assert nccl.version() == (2, 27, 3)
    assert nccl.unique_id() == bytes(range(128))
    assert not nccl.is_available([torch.ones(2)])
    with pytest.raises(RuntimeError, match="NCCL Error 3: internal error in ncclGroupStart"):
        nccl._call("ncclGroupStart")
