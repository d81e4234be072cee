"""Tensor._lazy_clone: memory is shared until one of the tensors is written. What torch 2.13 says, on small and large tensors."""

import threading

import mica as torch
import numpy as np
import pytest
from mica._as_torch.c_names import _data_address, _is_cow_tensor, _storage_address

SIZES = [4, 100_000]  # small memory lies with its storage, large memory apart


@pytest.mark.parametrize("size", SIZES)
def test_both_share_until_one_is_written(size):
    t = torch.arange(float(size))
    address, storage = _data_address(t), _storage_address(t)
    clone = t._lazy_clone()
    view = t.view(2, -1)
    assert all(_is_cow_tensor(x) for x in (t, view, clone))
    assert _data_address(clone) == _data_address(view) == address
    assert _storage_address(clone) != storage == _storage_address(view)
    total = t + clone  # reads
    assert _is_cow_tensor(t) and _is_cow_tensor(clone)
    assert torch.equal(total, torch.arange(float(size)) * 2)

    view += 1
    assert not _is_cow_tensor(t) and not _is_cow_tensor(view) and _is_cow_tensor(clone)
    assert _data_address(t) == _data_address(view) != address
    assert _data_address(clone) == address
    clone += 2  # the last one takes the memory as it is
    assert not _is_cow_tensor(clone) and _data_address(clone) == address
    assert torch.equal(t, torch.arange(float(size)) + 1)
    assert torch.equal(clone, torch.arange(float(size)) + 2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.zero_(),
        lambda t: t.copy_(torch.zeros_like(t)),
        lambda t: t.numpy().fill(0),
        lambda t: t.__setitem__(slice(None), 0),
        lambda t: torch.mul(t, 0, out=t),
        lambda t: torch.from_dlpack(t.__dlpack__()).zero_(),  # NumPy before 2 reads such memory only
        lambda t: t.untyped_storage().fill_(0),
        lambda t: t.detach().index_fill_(0, torch.arange(len(t)), 0),
        lambda t: t.share_memory_().zero_(),
    ],
)
def test_whatever_writes_takes_a_copy(size, write):
    t = torch.ones(size)
    first, second = t._lazy_clone(), t._lazy_clone()
    of_clone = first._lazy_clone()
    write(t)
    assert not t.any()
    for other in (first, second, of_clone):
        assert other.all()
    write(of_clone)
    assert not of_clone.any() and first.all() and second.all()


@pytest.mark.parametrize("size", SIZES)
def test_whoever_is_left_has_the_memory(size):
    t = torch.ones(size)
    clone = t._lazy_clone()
    del t
    clone.mul_(3)
    assert (clone == 3).all() and not _is_cow_tensor(clone)
    clone.resize_(2 * size)
    assert (clone[:size] == 3).all() and clone.untyped_storage().resizable()

    t = torch.ones(size)
    clone = t._lazy_clone()
    assert clone.untyped_storage().resizable()
    del clone
    t.resize_(3 * size)
    assert (t[:size] == 1).all()


def test_memory_of_another_library_is_copied():
    array = np.ones(5, dtype=np.float32)
    t = torch.from_numpy(array)
    clone = t._lazy_clone()
    assert not _is_cow_tensor(clone)
    array[:] = 7
    assert (t == 7).all() and (clone == 1).all()


def test_parts_keep_their_geometry():
    t = torch.arange(24.0).reshape(4, 6)
    clone = t[1:, ::2].t()._lazy_clone()
    assert clone.stride() == (2, 6) and clone.storage_offset() == 6
    t.zero_()
    assert clone.tolist() == [[6.0, 12.0, 18.0], [8.0, 14.0, 20.0], [10.0, 16.0, 22.0]]


def test_gradients():
    x = torch.randn(3, requires_grad=True)
    y = x._lazy_clone()
    (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 3.0]
    with torch.no_grad():
        assert not x._lazy_clone().requires_grad


@pytest.mark.parametrize("size", SIZES)
def test_threads(size):
    for _ in range(20):
        t = torch.ones(size)
        clones = [t._lazy_clone() for _ in range(4)]
        threads = [threading.Thread(target=clones[k].mul_, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        t.add_(1)
        for thread in threads:
            thread.join()
        assert (t == 2).all() and all((clones[k] == k).all() for k in range(4))
