"""torch.ops.quantized_decomposed. Expected values are torch 2.13's."""

import mica as torch
import mica.ao.quantization.fx._decomposed  # defines the operators
import pytest

ops = torch.ops.quantized_decomposed
Y = torch.tensor([[-1.0, 0.3, 2.0], [4.0, -0.26, 0.5]])


def lists(tensors):
    return [t.tolist() for t in tensors]


def test_per_tensor():
    assert ops.quantize_per_tensor(Y, 0.1, 3, 0, 255, torch.uint8).tolist() == [[0, 6, 23], [43, 0, 8]]
    integers = torch.tensor([3, 7], dtype=torch.int8)
    assert ops.dequantize_per_tensor(integers, 0.1, 3, -128, 127, torch.int8).tolist() == [0.0, 0.4000000059604645]
    scale, zero = ops.choose_qparams.tensor(Y, 0, 255, 1e-7, torch.uint8)
    assert lists([scale, zero]) == [[0.019607843831181526], [51]]
    quantized = ops.quantize_per_tensor.tensor(Y, scale, zero, 0, 255, torch.uint8)
    assert torch.equal(quantized, ops.quantize_per_tensor(Y, scale.item(), 51, 0, 255, torch.uint8))
    symmetric = ops.choose_qparams_symmetric.tensor(Y, -127, 127, 1e-7, torch.int8)
    assert lists(symmetric) == [[0.031496062874794006], [0]]


def test_per_vector():
    assert lists(ops.choose_qparams_per_token(Y, torch.int8)) == [
        [[0.015748031437397003], [0.031496062874794006]],
        [[0.0], [0.0]],
    ]
    found = ops.choose_qparams_per_token_asymmetric(Y, torch.int8)
    assert lists(found) == [[[0.0117647061124444], [0.016705883666872978]], [[-43], [-112]]]
    scales, zeros = torch.tensor([[0.1], [0.2]]), torch.tensor([[1], [2]])
    quantized = ops.quantize_per_token(Y, scales, zeros, -128, 127, torch.int8)
    assert quantized.tolist() == [[-9, 4, 21], [22, 1, 4]]
    back = ops.dequantize_per_token(quantized, scales, zeros, -128, 127, torch.int8, torch.float32)
    torch.testing.assert_close(back, torch.tensor([[-1.0, 0.3, 2.0], [4.0, -0.2, 0.4]]))


def test_per_channel_and_group():
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([1, 2])
    assert ops.quantize_per_channel(Y, scales, zeros, 0, -128, 127, torch.int8).tolist() == [[-9, 4, 21], [22, 1, 4]]
    integers = torch.tensor([[3, 7]], dtype=torch.int8)
    back = ops.dequantize_per_channel(integers, torch.tensor([0.1, 0.3]), None, 1, -128, 127, torch.int8)
    assert back.tolist() == [[0.30000001192092896, 2.1000001430511475]]
    x = Y.clone().requires_grad_()
    faked = ops.fake_quant_per_channel(x, scales, zeros, 0, -8, 7)
    torch.testing.assert_close(faked, torch.tensor([[-0.9, 0.3, 0.6], [1.0, -0.2, 0.4]]))
    faked.sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    groups = torch.cat([Y, Y], 1)[:, :4]
    by = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    found = ops.quantize_per_channel_group(groups, by, torch.zeros(2, 2).int(), -8, 7, torch.int8, 2)
    assert found.tolist() == [[-8, 3, 7, -5], [7, -1, 1, 7]]


def test_refusals_and_meta():
    with pytest.raises(AssertionError, match="quant_max out of bounds"):
        ops.quantize_per_tensor(Y, 0.1, 0, 0, 256, torch.uint8)
    with pytest.raises(AssertionError, match="Expecting input to have dtype"):
        ops.dequantize_per_tensor(Y, 0.1, 0, 0, 255, torch.uint8)
    with pytest.raises(AssertionError, match="divisible by group_size"):
        ops.quantize_per_channel_group(Y, Y, Y, -8, 7, torch.int8, 2)
    meta = ops.quantize_per_tensor.tensor(Y.to("meta"), torch.ones(1), torch.zeros(1), 0, 255, torch.uint8)
    assert meta.is_meta and meta.dtype is torch.uint8 and meta.shape == Y.shape
