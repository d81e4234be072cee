"""dtype, device, Size, layouts, Generator, finfo and iinfo behave and print as torch's."""

import copy
import pickle

import mica as torch
import pytest


def test_dtype_prints_and_knows_itself():
    assert repr(torch.float32) == "torch.float32"
    assert torch.float is torch.float32 and torch.long is torch.int64
    assert torch.float16.is_floating_point and not torch.int8.is_floating_point
    assert torch.complex64.is_complex and torch.complex64.to_real() is torch.float32
    assert torch.float64.to_complex() is torch.complex128
    assert torch.int8.is_signed and not torch.uint8.is_signed
    assert [d.itemsize for d in (torch.bool, torch.bfloat16, torch.float32, torch.complex128)] == [1, 2, 4, 16]


@pytest.mark.parametrize("value", ["float32", "strided", "channels_last"])
def test_singletons_survive_copies_and_pickles(value):
    original = getattr(torch, value)
    assert pickle.loads(pickle.dumps(original)) is original
    assert copy.deepcopy(original) is original and copy.copy(original) is original


def test_device():
    assert repr(torch.device("cpu")) == "device(type='cpu')"
    assert repr(torch.device("cuda", 1)) == "device(type='cuda', index=1)"
    assert str(torch.device("cuda:1")) == "cuda:1"
    assert torch.device("cuda:1") == torch.device("cuda", 1) != torch.device("cuda")
    assert torch.device("cpu").index is None and torch.device("cuda:3").index == 3
    assert len({torch.device("cpu"), torch.device("cpu"), torch.device("cpu:0")}) == 2
    assert pickle.loads(pickle.dumps(torch.device("cuda:1"))) == torch.device("cuda:1")
    with pytest.raises(RuntimeError, match="must not include an index because index was passed explicitly: cuda:0"):
        torch.device("cuda:0", 1)
    with pytest.raises(RuntimeError, match="at start of device string: nowhere"):
        torch.device("nowhere")


def test_device_is_a_context():
    with torch.device("meta"):
        assert torch.empty(2).device.type == "meta"
        with torch.device("cpu"):
            assert torch.empty(2).device.type == "cpu"
        assert torch.empty(2).is_meta
    assert torch.empty(2).is_cpu


def test_size():
    size = torch.Size([2, 3])
    assert repr(size) == "torch.Size([2, 3])" and size == (2, 3) and size.numel() == 6
    for other in (size + (4,), (4,) + size, size * 2, 2 * size, size[1:], size[:0]):
        assert type(other) is torch.Size
    assert type(size[0]) is int
    assert pickle.loads(pickle.dumps(size)) == size and type(pickle.loads(pickle.dumps(size))) is torch.Size
    with pytest.raises(TypeError, match=r"torch.Size\(\) takes an iterable of 'int' \(item 0 is 'str'\)"):
        torch.Size(["a"])


def test_sizes_do_not_mix_with_those_before_them():
    kept = [torch.empty(2, 300).shape for _ in range(40)]
    hashes = {hash(torch.empty(n, 300).shape) for n in range(40)}
    assert len(hashes) == 40 and all(size == (2, 300) for size in kept)
    del kept
    assert [tuple(torch.empty(tuple(range(n))).shape) for n in range(10)] == [tuple(range(n)) for n in range(10)]
    assert torch.Size([]) + (1,) == torch.empty(1).shape and hash(torch.Size((1,))) == hash((1,))


def test_limits():
    assert repr(torch.iinfo(torch.int8)) == "iinfo(min=-128, max=127, dtype=int8)"
    assert torch.iinfo(torch.int64).min == -(2**63) and torch.iinfo(torch.uint64).max == 2**64 - 1
    assert torch.finfo().dtype == "float32" and torch.finfo(torch.float64).eps == 2.220446049250313e-16
    assert repr(torch.finfo(torch.float16)) == (
        "finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, smallest_normal=6.10352e-05, "
        "tiny=6.10352e-05, dtype=float16)"
    )
    assert torch.finfo(torch.complex64) == torch.finfo(torch.float32)
    with pytest.raises(TypeError, match="requires a floating point input type"):
        torch.finfo(torch.int8)
    with pytest.raises(TypeError, match=r"torch.bool is not supported by torch.iinfo"):
        torch.iinfo(torch.bool)


def test_a_generator_is_called_by_torchs_name():
    assert repr(torch.manual_seed(0)).startswith("<torch._C.Generator object at 0x")
    for refused in (lambda g: g.graphsafe_get_state(), lambda g: g.graphsafe_set_state(g)):
        with pytest.raises(NotImplementedError, match="is not supported in this Generator"):
            refused(torch.Generator())


def test_generator():
    g = torch.Generator()
    assert g.initial_seed() == 67280421310721 and g.device == torch.device("cpu")
    assert g.manual_seed(3) is g and g.initial_seed() == 3
    state = g.get_state()
    assert state.dtype is torch.uint8 and state.shape == (5056,)
    other = g.clone_state()
    assert other.get_state().tolist() == state.tolist()
    assert torch.Generator().set_state(state).initial_seed() == 3
    with pytest.raises(TypeError, match=r"RNG state must be a torch.ByteTensor"):
        g.set_state(torch.zeros(3))


def test_names_of_integers_below_a_byte():
    assert torch.bit is torch.uint1 and repr(torch.int4) == "torch.int4" and isinstance(torch.bit, torch.dtype)
    assert torch.int3.is_signed and not torch.uint3.is_signed and torch.uint3.itemsize == 1
    assert pickle.loads(pickle.dumps(torch.int4)) is torch.int4 and copy.deepcopy(torch.bit) is torch.bit
    assert torch.empty(2, dtype=torch.bit).dtype == torch.bit
    with pytest.raises(NotImplementedError, match="not implemented for 'Int4'"):
        torch.ones(2).to(torch.int4)
    with pytest.raises(RuntimeError, match="attempted to promote UInt1 and Char"):
        torch.promote_types(torch.bit, torch.int8)
