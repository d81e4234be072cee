"""Pickles and copies of tensors."""

import copy
import pickle

import mica
import pytest


class Tagged(mica.Tensor):
    pass


def round_trip(x, protocol=pickle.DEFAULT_PROTOCOL):
    return pickle.loads(pickle.dumps(x, protocol))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "make",
    [
        lambda: mica.arange(6.0).reshape(2, 3),
        lambda: mica.arange(6).reshape(2, 3).t(),
        lambda: mica.arange(6)[::-1],
        lambda: mica.tensor(3.5),
        lambda: mica.empty(0, 3),
        lambda: mica.ones(2, dtype=mica.bfloat16),
        lambda: mica.ones(3, dtype=mica.bool),
        lambda: mica.tensor([1 + 2j]),
        lambda: mica.ones(1).expand(4),
    ],
)
def test_values_and_geometry(make, protocol):
    x = make()
    y = round_trip(x, protocol)
    assert y.dtype == x.dtype and y.shape == x.shape and y.stride() == x.stride() and y.tolist() == x.tolist()


def test_what_else_is_kept():
    x = mica.ones(2, requires_grad=True)
    assert round_trip(x).requires_grad and not round_trip(x.detach()).requires_grad
    assert round_trip(x * 2).requires_grad  # as a leaf
    x.note = "kept"
    assert round_trip(x).note == "kept"
    meta = round_trip(mica.ones(2, 3, device="meta"))
    assert meta.is_meta and meta.shape == (2, 3)
    assert round_trip(mica.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]


@pytest.mark.parametrize("copied", [round_trip, copy.deepcopy])
def test_shared_storages_stay_shared(copied):
    x = mica.arange(6.0)
    y, z, same = copied([x, x[2:4], x])
    assert same is y
    y[2] = 99
    assert z.tolist() == [99, 3] and x[2].item() == 2
    assert z.storage_offset() == 2


@pytest.mark.parametrize("copied", [round_trip, copy.deepcopy])
def test_values_of_the_package(copied):
    for value in (mica.float32, mica.device("cpu"), mica.Size([1, 2]), mica.strided, mica.channels_last):
        assert copied(value) == value and type(copied(value)) is type(value)


@pytest.mark.parametrize("copied", [round_trip, copy.copy, copy.deepcopy])
def test_generators_go_on_where_they_were(copied):
    generator = mica.Generator().manual_seed(7)
    mica.rand(3, generator=generator)
    other = copied(generator)
    assert mica.equal(mica.rand(3, generator=other), mica.rand(3, generator=generator))
    assert other.initial_seed() == 7


def test_copy_shares_memory():
    x = mica.ones(2, requires_grad=True)
    y = copy.copy(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and y.requires_grad


def test_deepcopy():
    x = mica.ones(2, requires_grad=True)
    x.sum().backward()
    x.note = [1]
    y = copy.deepcopy(x)
    assert y.data_ptr() != x.data_ptr() and y.requires_grad and y.is_leaf
    assert y.grad.tolist() == [1, 1] and y.grad is not x.grad
    assert y.note == [1] and y.note is not x.note
    assert copy.deepcopy(mica.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    assert copy.deepcopy(mica.ones(2, device="meta")).is_meta
    memo = {}
    assert copy.deepcopy(x, memo) is copy.deepcopy(x, memo)


def test_deepcopy_of_a_result():
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(mica.ones(2, requires_grad=True) * 2)


@pytest.mark.parametrize("copied", [round_trip, copy.deepcopy, copy.copy])
def test_subclasses(copied):
    x = mica.ones(2).as_subclass(Tagged)
    x.tag = "t"
    y = copied(x)
    assert type(y) is Tagged and y.tag == "t" and y.tolist() == [1, 1]


@pytest.mark.parametrize("copied", [round_trip, copy.deepcopy])
def test_parameters(copied):
    p = mica.nn.Parameter(mica.ones(2), requires_grad=False)
    p.tag = "t"
    q = copied(p)
    assert type(q) is mica.nn.Parameter and not q.requires_grad and q.tag == "t" and q.data_ptr() != p.data_ptr()
    assert repr(q).startswith("Parameter containing:\ntensor([1., 1.]")
    assert isinstance(p * 1, mica.Tensor) and type(p * 1) is mica.Tensor
