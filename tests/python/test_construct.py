"""Tensors from Python data, arrays and buffers."""

import array

import mica
import pytest

np = pytest.importorskip("numpy")


@pytest.mark.parametrize(
    ("data", "dtype", "values"),
    [
        (5, mica.int64, 5),
        ([1, 2.5, True], mica.float32, [1, 2.5, 1]),
        ([True, False], mica.bool, [True, False]),
        ([1, 1j], mica.complex64, [1, 1j]),
        ([], mica.float32, []),
        ([[], []], mica.float32, [[], []]),
        (range(3), mica.int64, [0, 1, 2]),
        (array.array("d", [1.0]), mica.float32, [1.0]),
        (bytearray(b"ab"), mica.int64, [97, 98]),
        (np.float64(1), mica.float64, 1.0),
        (np.float16(1), mica.float16, 1.0),
        ([np.int8(1)], mica.int8, [1]),
        ([np.float64(1), np.float32(2)], mica.float64, [1, 2]),
        (np.array(3), mica.int64, 3),
        (np.arange(3)[::-1], mica.int64, [2, 1, 0]),
        ([np.array([1, 2]), np.array([3, 4])], mica.int64, [[1, 2], [3, 4]]),
        ([mica.tensor(1), mica.tensor(2.5)], mica.float32, [1, 2.5]),
        ([[7, np.array(5)], [np.array(9), 5.0]], mica.float32, [[7, 5], [9, 5]]),
        ([mica.tensor(5), np.array(6.0)], mica.float64, [5, 6]),
        ([mica.tensor([1]), mica.tensor([2])], mica.int64, [1, 2]),
    ],
)
def test_dtype_follows_the_data(data, dtype, values):
    x = mica.tensor(data)
    assert x.dtype == dtype and x.tolist() == values


def test_asked_for_dtype():
    assert mica.tensor([1.5], dtype=mica.int32).tolist() == [1]
    assert mica.tensor([-1], dtype=mica.uint8).tolist() == [255]
    assert mica.tensor([2**70, -(2**70)], dtype=mica.float64).tolist() == [2.0**70, -(2.0**70)]
    assert mica.tensor([2**70, 0], dtype=mica.bool).tolist() == [True, False]
    assert mica.tensor(np.ones(2), dtype=mica.bfloat16).dtype == mica.bfloat16
    assert mica.tensor([1.0], requires_grad=True).requires_grad


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([[1, 2], [3, 4, 5]], ValueError, "expected sequence of length 2 at dim 1 (got 3)"),
        ([[1, 2], [3]], ValueError, "expected sequence of length 2 at dim 1 (got 1)"),
        (["abc"], ValueError, "too many dimensions 'str'"),
        ([1, "a"], TypeError, "new(): invalid data type 'str'"),
        ("abc", TypeError, "new(): invalid data type 'str'"),
        (b"abc", TypeError, "new(): invalid data type 'bytes'"),
        ([[1], 2], TypeError, "not a sequence"),
        ([1, [2]], TypeError, "'list' object cannot be interpreted as an integer"),
        ([1.0, [2]], TypeError, "must be real number, not list"),
        (None, RuntimeError, "Could not infer dtype of NoneType"),
        ([None], RuntimeError, "Could not infer dtype of NoneType"),
        ({}, RuntimeError, "Could not infer dtype of dict"),
        ([2**64], ValueError, "Overflow when unpacking long long"),
        ([mica.ones(2), mica.ones(2)], ValueError, "only one element tensors can be converted to Python scalars"),
        (np.array(["a"]), TypeError, "can't convert np.ndarray of type numpy.str_"),
    ],
)
def test_what_tensor_refuses(data, error, words):
    with pytest.raises(error) as caught:
        mica.tensor(data)
    assert str(caught.value).startswith(words)


def test_endless_lists():
    endless = [1]
    endless.append(endless)
    for data in (endless, [endless]):
        with pytest.raises(ValueError):
            mica.tensor(data)


def test_as_tensor_shares_where_it_can():
    x = mica.ones(2)
    assert mica.as_tensor(x) is x and mica.as_tensor(x, dtype=mica.float64).dtype == mica.float64
    a = np.ones(2)
    assert mica.as_tensor(a).data_ptr() == a.ctypes.data
    assert mica.as_tensor(a, dtype=mica.float32).data_ptr() != a.ctypes.data
    assert mica.as_tensor([1, 2]).tolist() == [1, 2]
    assert mica.tensor(a).data_ptr() != a.ctypes.data


def test_asarray():
    a = np.ones(2)
    assert mica.asarray(a).data_ptr() == a.ctypes.data and mica.asarray(a, copy=True).data_ptr() != a.ctypes.data
    assert mica.asarray([1, 2], dtype=mica.float32).tolist() == [1, 2] and mica.asarray(5).tolist() == 5
    assert mica.asarray(bytearray(b"\1\0\0\0"), dtype=mica.int32).tolist() == [1]
    assert mica.asarray(a, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="can't alias arbitrary sequence"):
        mica.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="can't alias tensor with dtype 'Float' into dtype 'Int'"):
        mica.asarray(mica.ones(2), dtype=mica.int32, copy=False)
    with pytest.raises(RuntimeError, match="Could not infer dtype"):
        mica.asarray(object())


def test_frombuffer():
    data = bytearray(b"12345678")
    x = mica.frombuffer(data, dtype=mica.uint8)
    x[0] = ord("9")
    assert data == b"92345678"
    assert mica.frombuffer(data, dtype=mica.int32, count=1, offset=4).shape == (1,)
    with pytest.raises(BufferError):
        data.extend(b"more")
    del x
    data.extend(b"more")


@pytest.mark.parametrize(
    ("data", "kwargs", "words"),
    [
        (b"1234567", {}, "must be a multiple of element size (4)"),
        (b"", {}, "both buffer length (0) and count (-1) must not be 0"),
        (b"1234", {"count": 0}, "both buffer length (4) and count (0) must not be 0"),
        (b"1234", {"offset": 8}, "must be non-negative and no greater than buffer length (4 bytes) minus 1"),
        (b"1234", {"offset": -1}, "must be non-negative"),
        (b"1234", {"count": 2}, "must not be greater than actual buffer length (4 bytes)"),
        (b"1234", {"count": 2**62}, "must not be greater than actual buffer length (4 bytes)"),
    ],
)
def test_what_frombuffer_refuses(data, kwargs, words):
    with pytest.raises(ValueError) as caught:
        mica.frombuffer(bytearray(data), dtype=mica.int32, **kwargs)
    assert words in str(caught.value)
    with pytest.raises(ValueError, match="does not implement"):
        mica.frombuffer([1], dtype=mica.int32)


def test_constructors_of_old():
    assert mica.FloatTensor(2, 3).shape == (2, 3) and mica.FloatTensor().shape == (0,)
    assert mica.FloatTensor(mica.Size([2, 3])).shape == (2, 3) and mica.FloatTensor((2, 3)).tolist() == [2, 3]
    assert mica.LongTensor([1, 2]).dtype == mica.int64 and mica.IntTensor([1.7]).tolist() == [1]
    assert mica.BoolTensor([1, 0]).tolist() == [True, False] and mica.FloatTensor(np.ones(2)).dtype == mica.float32
    assert mica.BFloat16Tensor([1]).type() == "torch.BFloat16Tensor"
    assert mica.Tensor([1, 2]).dtype == mica.float32 and mica.Tensor(2, 3).shape == (2, 3)
    x = mica.tensor([1, 2])
    assert mica.LongTensor(x).data_ptr() == x.data_ptr() and mica.Tensor(x).dtype == mica.int64
    with pytest.raises(TypeError, match=r"expected torch.FloatTensor \(got torch.LongTensor\)"):
        mica.FloatTensor(x)
    with pytest.raises(TypeError, match="data must be a sequence"):
        mica.FloatTensor(5.5)
    with pytest.raises(TypeError, match="type must be tuple of ints"):
        mica.Tensor(3, "a")


def test_tensor_types():
    x = mica.ones(1)
    assert isinstance(x, mica.FloatTensor) and not isinstance(x, mica.LongTensor) and isinstance(x, mica.Tensor)
    assert repr(mica.FloatTensor) == "<class 'torch.FloatTensor'>" and mica.FloatTensor.dtype == mica.float32
    assert x.type(mica.LongTensor).dtype == x.type("torch.LongTensor").dtype == mica.int64
    assert x.storage_type() is mica.FloatStorage
    try:
        mica.set_default_tensor_type(mica.DoubleTensor)
        assert mica.ones(1).dtype == mica.float64
    finally:
        mica.set_default_tensor_type("torch.FloatTensor")


def test_new():
    x = mica.ones(2, dtype=mica.int32)
    assert x.new([1, 2]).dtype == mica.int32 and x.new(3).shape == (3,) and x.new().shape == (0,)
    assert x.new_tensor([1.5]).tolist() == [1] and x.new_tensor(5, dtype=mica.float64).dtype == mica.float64
