"""Quantized integers of 4 and of 2 bits, and zero points that are real numbers: the values are torch's."""

import copy
import io
import pickle

import mica
import pytest

X = mica.arange(12.0).reshape(3, 4) - 3
SCALES, ZEROS = mica.tensor([0.5, 1.0, 2.0]), mica.tensor([1.0, 2.0, 3.5])
FOUR, TWO = mica.quint4x2, mica.quint2x4
NUMBERS = {
    FOUR: [[-0.5, -0.5, -0.5, 0.0], [1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 7.0, 9.0]],
    TWO: [[-0.5, -0.5, -0.5, 0.0], [1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, -1.0]],
}
BYTES = {FOUR: [0, 16, 67, 101, 102, 135], TWO: [64, 255, 255]}


def made(dtype=FOUR, x=X):
    return mica.quantize_per_channel(x, SCALES, ZEROS, 0, dtype)


@pytest.mark.parametrize("dtype", [FOUR, TWO])
def test_per_channel(dtype):
    q = made(dtype)
    assert q.dtype == dtype and q.is_quantized and q.shape == (3, 4) and q.numel() == 12
    assert q.dequantize().tolist() == NUMBERS[dtype]
    assert q.int_repr().dtype == mica.uint8 and q.int_repr().tolist() == BYTES[dtype]
    assert q.untyped_storage().nbytes() == len(BYTES[dtype])  # a byte holds several
    assert q.qscheme() == mica.per_channel_affine_float_qparams and q.q_per_channel_axis() == 0
    assert q.q_per_channel_scales().equal(SCALES) and q.q_per_channel_zero_points().equal(ZEROS)
    with pytest.raises(NotImplementedError, match="quantize_tensor_per_channel_affine.*not implemented for 'QUInt"):
        mica.quantize_per_channel(X, SCALES, mica.tensor([1, 2, 3]), 0, dtype)


def test_per_tensor():
    q = mica.quantize_per_tensor(X, 0.5, 2, FOUR)
    assert q.int_repr().tolist() == [0, 32, 100, 168, 236, 255] and q.q_scale() == 0.5 and q.q_zero_point() == 2
    assert q.dequantize().tolist() == [[-1.0, -1.0, -1.0, 0.0], [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 6.5, 6.5]]
    with pytest.raises(RuntimeError, match="zero_point 16 is above upper bound"):
        mica.quantize_per_tensor(X, 0.5, 16, FOUR)


def test_sizes_that_fill_no_byte_and_extremes():
    assert made(FOUR, X[:, :3]).int_repr().tolist() == [0, 48, 84, 102, 7]
    assert made(TWO, X[:, :3]).int_repr().tolist() == [192, 255, 3]
    q = made(FOUR, X[:, :0])
    assert q.dequantize().shape == (3, 0) and q.int_repr().tolist() == []
    x = mica.tensor([[-100.0, 100, 0.24, 0.25, 0.75, 1.25, float("nan"), 0]])
    one = mica.quantize_per_channel(x, mica.tensor([0.5]), mica.tensor([1.25]), 0, FOUR)
    assert one.int_repr().tolist() == [240, 34, 67, 16]
    columns = mica.quantize_per_channel(X, mica.ones(4), mica.zeros(4), 1, FOUR)
    assert columns.dequantize().equal(X.clamp(0, 15))
    assert made(FOUR, X.t().contiguous().t()).equal(made())


def test_real_zero_points_of_bytes():
    q = mica.quantize_per_channel(X, SCALES, ZEROS, 0, mica.quint8)
    assert q.qscheme() == mica.per_channel_affine_float_qparams and q.q_per_channel_zero_points().dtype == mica.float32
    assert q.int_repr().tolist() == [[0, 0, 0, 1], [3, 4, 5, 6], [6, 6, 7, 8]]
    assert q.dequantize().tolist() == [[-0.5, -0.5, -0.5, 0.0], [1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 7.0, 9.0]]
    assert pickle.loads(pickle.dumps(q)).equal(q)


def test_text():
    assert repr(made()) == (
        "tensor([[-0.5000, -0.5000, -0.5000,  0.0000],\n        [ 1.0000,  2.0000,  3.0000,  4.0000],\n"
        "        [ 5.0000,  5.0000,  7.0000,  9.0000]], size=(3, 4),\n       dtype=torch.quint4x2,\n"
        "       quantization_scheme=torch.per_channel_affine_float_qparams,\n"
        "       scale=tensor([0.5000, 1.0000, 2.0000]),\n       zero_point=tensor([1.0000, 2.0000, 3.5000]), axis=0)"
    )


@pytest.mark.parametrize("dtype", [FOUR, TWO])
def test_copies_and_files(dtype, tmp_path):
    q = made(dtype)
    file = io.BytesIO()
    mica.save(q, file)
    file.seek(0)
    for other in (
        q.clone(),
        q.contiguous(),
        q.to("cpu"),
        q.detach(),
        copy.deepcopy(q),
        pickle.loads(pickle.dumps(q)),
        mica.load(file),
    ):
        assert other.dtype == dtype and other.equal(q) and other.dequantize().tolist() == NUMBERS[dtype]
    assert not q.equal(made(dtype, -X))
    other = made(dtype, -X)
    assert other.copy_(X).equal(q)


def test_what_is_refused():
    q = made()
    for call in (
        lambda: q[1],
        lambda: q[1:],
        lambda: q.view(-1),
        lambda: q.t(),
        lambda: q.view(mica.uint8),
        lambda: mica.cat([q, q]),
        lambda: q + q,
        lambda: q.max(),
        lambda: mica.empty(2, dtype=FOUR),
        lambda: q.numpy(),
        lambda: mica.from_dlpack(q),
        lambda: q.tolist(),
        lambda: mica.zeros(2, dtype=mica.uint8).view(FOUR),
    ):
        with pytest.raises((RuntimeError, TypeError, BufferError)):
            call()
    assert q.dequantize().tolist() == NUMBERS[FOUR]
