"""torch.ops.quantized; the integers are those that torch 2.13 gives."""

import mica as torch
import pytest

ops = torch.ops.quantized


def _q(values, scale=0.1, zero_point=3, dtype=torch.quint8):
    return torch.quantize_per_tensor(torch.tensor(values), scale, zero_point, dtype)


@pytest.fixture
def pair():
    return _q([0.0, 0.5, -0.2, 3.0]), _q([1.0, -0.5, 0.04, 2.0], 0.05, 7)


def test_sums_and_products(pair):
    a, b = pair
    assert ops.add(a, b, 0.2, 5).int_repr().tolist() == [10, 6, 4, 30]
    assert ops.add_relu(a, b, 0.2, 5).int_repr().tolist() == [10, 6, 5, 30]
    assert ops.mul(a, b, 0.02, 100).int_repr().tolist() == [100, 91, 99, 255]
    assert ops.mul_relu(a, b, 0.02, 100).int_repr().tolist() == [100, 100, 100, 255]
    assert ops.add(a, b, 0.2, 5).q_scale() == pytest.approx(0.2) and ops.add(a, b, 0.2, 5).q_zero_point() == 5


def test_numbers_move_the_zero_point_or_the_scale(pair):
    a, _ = pair
    moved = ops.add(a, -1.0)
    assert moved.q_zero_point() == 13 and moved.int_repr().tolist() == a.int_repr().tolist()
    far = ops.add_scalar(a, 2.0)  # the zero point cannot go below 0: the scale grows
    assert far.q_zero_point() == 0 and far.q_scale() == pytest.approx(0.1 * 272 / 255)
    doubled = ops.mul(a, 2)
    assert doubled.q_scale() == pytest.approx(0.2) and doubled.int_repr().tolist() == a.int_repr().tolist()
    turned = ops.mul_scalar(a, -2.0)
    assert turned.q_zero_point() == 252 and turned.int_repr().tolist() == [252, 247, 254, 222]
    assert torch.equal(ops.mul(2, a).dequantize(), doubled.dequantize())


def test_joined_and_multiplied():
    a, b = _q([[0.0, 1.0], [2.0, 3.0]]), _q([[1.0, 0.5], [0.0, 1.0]])
    assert ops.cat([a, b], 1, 0.1, 3).int_repr().tolist() == [[3, 13, 13, 8], [23, 33, 3, 13]]
    assert ops.matmul(a, b, 0.1, 0).int_repr().tolist() == [[0, 10], [20, 40]]


def test_packed_layers():
    x = _q([[1.0, -0.2, 0.5]])
    weight = torch.quantize_per_tensor(torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 1.0]]), 0.05, 0, torch.qint8)
    bias = torch.tensor([0.1, -0.1])
    packed = ops.linear_prepack(weight, bias)
    assert ops.linear_unpack(packed)[0] is weight
    assert ops.linear(x, packed, 0.1, 10).int_repr().tolist() == [[12, 19]]
    assert ops.linear_relu(x, packed, 0.1, 10).int_repr().tolist() == [[12, 19]]
    image = torch.quantize_per_tensor(torch.ones(1, 1, 3, 3), 0.1, 0, torch.quint8)
    kernel = torch.quantize_per_tensor(torch.full((1, 1, 2, 2), 0.5), 0.01, 0, torch.qint8)
    conv = ops.conv2d_prepack(kernel, None, [1, 1], [0, 0], [1, 1], 1)
    assert ops.conv2d(image, conv, 0.1, 0).int_repr().tolist() == [[[[20, 20], [20, 20]]]]
    assert conv.stride() == (1, 1) and conv.groups() == 1


def test_names_schemas_and_refusals(pair):
    a, _ = pair
    assert ops.add.overloads() == ["default", "out", "Scalar", "Scalar2", "Scalar_out"]
    assert str(ops.add.default._schema).startswith("quantized::add(Tensor qa, Tensor qb, float scale, int zero_point)")
    assert {"add", "conv2d", "linear", "linear_prepack"} <= set(dir(ops))
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        _ = ops.no_such_thing
    with pytest.raises(RuntimeError, match="same quantization scheme"):
        ops.add(a, torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), 0.1, 0)
    with pytest.raises(RuntimeError, match="quantized tensor"):
        ops.linear_prepack(torch.ones(2, 2), None)
