"""Quantized tensors: integers that stand for real numbers, per tensor and per channel."""

import copy
import io
import pickle

import mica as torch
import pytest


def example():
    return torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 0.55, 1.0]), 0.01, 128, torch.quint8)


def test_per_tensor():
    q = example()
    assert q.is_quantized and q.dtype is torch.quint8 and q.element_size() == 1
    assert q.qscheme() is torch.per_tensor_affine and q.q_scale() == 0.01 and q.q_zero_point() == 128
    assert q.int_repr().dtype == torch.uint8 and q.int_repr().tolist() == [28, 128, 183, 228]
    torch.testing.assert_close(q.dequantize(), torch.tensor([-1.0, 0.0, 0.55, 1.0]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "integers", "low", "high"),
    [
        (torch.quint8, torch.uint8, 0, 255),
        (torch.qint8, torch.int8, -128, 127),
        (torch.qint32, torch.int32, -(2**31), 2**31 - 1),
    ],
)
def test_rounding_and_bounds(dtype, integers, low, high):
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, 1e30, -1e30, torch.inf, -torch.inf] * 5)
    q = torch.quantize_per_tensor(x, 1.0, 3, dtype)
    assert q.int_repr().dtype == integers
    assert q.int_repr()[:8].tolist() == [3, 5, 5, max(3, low), high, low, high, low]  # halves go to the even neighbour
    assert q.int_repr()[32:].tolist() == q.int_repr()[:8].tolist()


@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel(axis):
    torch.manual_seed(0)
    x = torch.randn(3, 8)
    scales = x.abs().amax(1 - axis) / 127
    q = torch.quantize_per_channel(x, scales, torch.zeros(x.shape[axis], dtype=torch.int64), axis, torch.qint8)
    assert q.qscheme() is torch.per_channel_affine and q.q_per_channel_axis() == axis
    assert torch.equal(q.q_per_channel_scales(), scales.double()) and q.q_per_channel_zero_points().sum() == 0
    steps = scales.unsqueeze(1 - axis)
    assert ((q.dequantize() - x).abs() <= steps * 0.5001).all()  # at most half a step away
    with pytest.raises(RuntimeError, match="per channel"):
        q.q_scale()


def test_dynamic_parameters():
    q = torch.quantize_per_tensor_dynamic(torch.tensor([-1.0, 2.0]), torch.quint8, False)
    assert q.q_scale() == pytest.approx(3 / 255) and q.q_zero_point() == 85
    assert torch.quantize_per_tensor_dynamic(torch.zeros(3), torch.quint8, False).dequantize().tolist() == [0, 0, 0]


def test_any_scale_is_taken():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.quantize_per_tensor(x, -0.1, 10, torch.quint8).int_repr().tolist() == [[0, 0], [0, 0]]
    assert torch.quantize_per_tensor(x, 0.0, 10, torch.quint8).int_repr().tolist() == [[255, 255], [255, 255]]
    scales, zeros = torch.tensor([-0.1, 0.2]), torch.tensor([0, 1])
    assert torch.quantize_per_channel(x, scales, zeros, 0, torch.quint8).int_repr().tolist() == [[0, 0], [16, 21]]


@pytest.mark.parametrize(
    ("scale", "zero_point", "message"),
    [(0.1, 300, "above upper bound"), (0.1, -1, "below lower bound")],
)
def test_bad_parameters(scale, zero_point, message):
    with pytest.raises(RuntimeError, match=message):
        torch.quantize_per_tensor(torch.ones(2), scale, zero_point, torch.quint8)


def test_bad_input():
    with pytest.raises(RuntimeError, match="Float Tensor"):
        torch.quantize_per_tensor(torch.ones(2, dtype=torch.float64), 0.1, 0, torch.quint8)
    with pytest.raises(RuntimeError, match="quint8, qint8, qint32, quint4x2 or quint2x4"):
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.int64)
    with pytest.raises(RuntimeError, match="length of scales"):
        torch.quantize_per_channel(torch.ones(2, 3), torch.ones(3), torch.zeros(3), 0, torch.qint8)
    for call in (lambda: torch.zeros(2, dtype=torch.quint8), lambda: torch.ones(2).to(torch.qint8)):
        with pytest.raises(NotImplementedError, match="quantized tensors only"):
            call()


def test_views_and_copies_keep_the_quantizer():
    q = example()
    for y in (q[1:3], q.view(2, 2), q.reshape(2, 2).t(), q.clone(), q.detach(), q.contiguous(), q[None]):
        assert y.is_quantized and y.q_scale() == 0.01 and y.q_zero_point() == 128
    assert q[1:3].int_repr().tolist() == [128, 183]
    q[0] = 0.5
    assert q.int_repr().tolist() == [178, 128, 183, 228]
    assert q.relu().int_repr().tolist() == [178, 128, 183, 228] and torch.equal(q, q.clone())
    assert q.max().dequantize().item() == pytest.approx(1.0)
    assert torch.cat([q, q]).shape == (8,)


def test_a_view_as_another_dtype_is_of_plain_integers():
    """As in torch, and over the same memory; a quantizer of other elements would read beyond them."""
    channels = torch.quantize_per_channel(
        torch.ones(2, 4), torch.tensor([0.5, 0.1]), torch.tensor([0, 3]), 0, torch.qint8
    )
    for q in (example().view(2, 2), channels):
        for dtype in (torch.uint8, torch.int8, torch.bool, torch.int16):
            y = q.view(dtype)
            assert y.dtype == dtype and not y.is_quantized and y.data_ptr() == q.data_ptr() and repr(y)
    assert channels.view(torch.int8).tolist() == [[2] * 4, [13] * 4]
    with pytest.raises(NotImplementedError, match="possible only on uniformly quantized tensor"):
        channels.view(8)


def test_operations_that_quantized_tensors_do_not_have():
    q = example()
    with pytest.raises(NotImplementedError, match="'QuantizedCPU' backend"):
        q + q
    with pytest.raises(NotImplementedError, match="'QuantizedCPU' backend"):
        q.sum()
    for call in (q.numpy, q.tolist):
        with pytest.raises((RuntimeError, TypeError)):
            call()


def test_files_and_copies():
    x = torch.arange(6.0).reshape(2, 3)
    channels = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([1, 2]), 0, torch.qint8)
    for q in (example(), channels):
        buffer = io.BytesIO()
        torch.save(q, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        for y in (loaded, pickle.loads(pickle.dumps(q)), copy.deepcopy(q)):
            assert y.dtype is q.dtype and torch.equal(y, q)


def test_printing():
    assert repr(example()) == (
        "tensor([-1.0000,  0.0000,  0.5500,  1.0000], size=(4,), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.01, zero_point=128)"
    )


def test_fake_quantization():
    x = torch.tensor([-1.0, 0.04, 0.06, 2.0], requires_grad=True)
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -10, 10)
    torch.testing.assert_close(y, torch.tensor([-1.0, 0.0, 0.1, 1.0]))
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 0]
    w = torch.randn(2, 3)
    scales, zeros = torch.tensor([0.1, 0.2]), torch.zeros(2, dtype=torch.int32)
    per_channel = torch.fake_quantize_per_channel_affine(w, scales, zeros, 0, -128, 127)
    real = torch.quantize_per_channel(w, scales, zeros, 0, torch.qint8).dequantize()
    torch.testing.assert_close(per_channel, real)


def test_products_of_integers():
    torch.manual_seed(0)
    a = torch.randint(-128, 128, (7, 83), dtype=torch.int8)
    b = torch.randint(-128, 128, (83, 130), dtype=torch.int8)
    got = torch._int_mm(a, b)
    assert got.dtype == torch.int32 and torch.equal(got, a.int() @ b.int())
    x, scales = torch.randn(4, 83), torch.rand(130)
    exact = (x.double() @ b.double()) * scales.double()

    def error(y):
        return (y.double() - exact).pow(2).mean().sqrt()

    assert error(torch._weight_int8pack_mm(x, b.t(), scales)) <= error((x @ b.float()) * scales)


def test_gradient_stops_outside_the_range():
    x = torch.linspace(-2, 2, 9, requires_grad=True)
    (torch.fake_quantize_per_tensor_affine(x, 0.25, 0, -4, 4) * 3).sum().backward()
    assert torch.equal(x.grad, 3.0 * (x.abs() <= 1.0))


def test_quantized_arguments_of_tensors_that_are_not():
    """The second tensor of such a call was taken for one with a quantizer, which ended the process."""
    q = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 5, torch.quint8)
    x = torch.zeros(2, 3)
    for call in (
        lambda: x.masked_fill_(q, 1.0),
        lambda: x.masked_fill(q, q),
        lambda: x.index_put_((torch.tensor([0]),), q[0]),
        lambda: q.masked_fill_(q, q.clone()),
    ):
        with pytest.raises(RuntimeError, match="takes no quantized tensors as arguments"):
            call()
    assert torch.equal(x, torch.zeros(2, 3)) and q.int_repr().unique().tolist() == [15]
