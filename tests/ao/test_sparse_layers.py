"""torch.ao.nn.sparse.quantized: linear maps with sparse weights."""

import copy
import pickle

import mica as torch
import pytest
from mica import nn
from mica.ao import quantization as tq
from mica.ao.nn.sparse import quantized as sq
from mica.ao.nn.sparse.quantized import dynamic as sqd
from mica.ao.nn.sparse.quantized.utils import LinearBlockSparsePattern


def _numbers(*sizes, step=37, modulus=23, divisor=17):
    count = torch.zeros(sizes).numel()
    return (torch.arange(count) * step % modulus - modulus // 2).reshape(sizes) / divisor


@pytest.fixture
def layer():
    made = nn.Linear(8, 4)
    with torch.no_grad():
        made.weight.copy_(_numbers(4, 8))
        made.bias.copy_(_numbers(4))
        made.weight[:, :4] = 0
        made.weight[2] = 0
    made.qconfig = tq.default_dynamic_qconfig
    return made


X = _numbers(3, 8, step=29, modulus=19, divisor=7)
# What torch computes with its own kernel for sparse weights.
DYNAMIC = [[-1.2087, 0.3376, -0.3529, 1.7178], [-1.6141, 0.3079, -0.3529, 1.6435], [0.3786, -0.0377, -0.3529, -0.4939]]


def test_dynamic(layer):
    made = sqd.Linear.from_float(layer)
    torch.testing.assert_close(made(X), torch.tensor(DYNAMIC), atol=1e-4, rtol=0)
    assert repr(made) == "SparseQuantizedDynamicLinear(in_features=8, out_features=4, qscheme=torch.per_tensor_affine)"
    assert list(made.state_dict()) == ["op_type", "_packed_params.dtype", "_packed_params._packed_params"]
    assert made._weight_bias()[2:] == (1, 4) and made.weight().dtype == torch.qint8
    assert made(X.reshape(3, 1, 8)).shape == (3, 1, 4)


def test_static(layer):
    layer.qconfig = tq.get_default_qconfig("qnnpack")
    layer.sparse_params = {"sparse_block_shape": (2, 4)}
    layer.activation_post_process = layer.qconfig.activation()
    layer.activation_post_process(layer(X))
    made, plain = sq.Linear.from_float(layer), torch.ao.nn.quantized.Linear.from_float(layer)
    x = torch.quantize_per_tensor(X, 0.02, 128, torch.quint8)
    assert torch.equal(made(x).int_repr(), plain(x).int_repr())  # as with a weight whose zeros are multiplied
    assert made._weight_bias()[2:] == (2, 4) and repr(made).startswith("SparseQuantizedLinear(in_features=8")
    other = sq.Linear(8, 4, 1, 4)
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x).int_repr(), made(x).int_repr()) and other._weight_bias()[2:] == (2, 4)


def test_wide_weights_are_summed_exactly():
    torch.manual_seed(0)
    layer = nn.Linear(3000, 2)
    layer.qconfig = tq.default_dynamic_qconfig
    dense = torch.ao.nn.quantized.dynamic.Linear.from_float(layer)
    x = torch.rand(4, 3000)
    torch.testing.assert_close(sqd.Linear.from_float(layer)(x), dense(x), atol=1e-4, rtol=0)


def test_scales_of_rows(layer):
    layer.qconfig = tq.per_channel_dynamic_qconfig
    made = sqd.Linear.from_float(layer)
    assert made.weight().qscheme() == torch.per_channel_affine
    torch.testing.assert_close(made(X), layer(X), atol=0.02, rtol=0)


def test_copies(layer):
    made = sqd.Linear.from_float(layer)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other(X), made(X))
    again = sqd.Linear(8, 4, 1, 4)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(X), made(X))


def test_blocks(layer):
    assert LinearBlockSparsePattern.block_size() == (1, 4)
    with LinearBlockSparsePattern(8, 1):
        assert sqd.Linear.from_float(layer)._weight_bias()[2:] == (8, 1)
    assert LinearBlockSparsePattern.block_size() == (1, 4)
    with pytest.raises(AssertionError, match="Invalid linear block sparse pattern: row_block_size=3, col_block_size=5"):
        LinearBlockSparsePattern(3, 5)


def test_refusals(layer):
    with pytest.raises(AssertionError, match="Expecting the Linear to have `sparse_params`"):
        sq.Linear.from_float(layer)
    with pytest.raises(AssertionError, match="only works for Linear"):
        sqd.Linear.from_float(nn.ReLU())
    with pytest.raises(NotImplementedError, match="Only QINT8"):
        sq.Linear(8, 4, 1, 4, dtype=torch.quint8)
    with pytest.raises(RuntimeError, match="last and weight tensor's second dimension must match"):
        sqd.Linear(8, 4, 1, 4)(torch.ones(2, 7))
    moved = torch.quantize_per_tensor(torch.ones(4, 8), 0.1, 3, torch.qint8)
    with pytest.raises(ValueError, match="zero point of the weight must be 0"):
        sqd.Linear(8, 4, 1, 4).set_weight_bias(moved, None, 1, 4)
    del layer.qconfig
    with pytest.raises(AssertionError, match="must have qconfig defined"):
        sqd.Linear.from_float(layer)
