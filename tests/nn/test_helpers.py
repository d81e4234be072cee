"""What torch's layers call beside functions with names of their own: layers that programs write anew call it too."""

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.nn.utils import prune


def test_projections_of_attention():
    q, k, v = (mica.randn(2, 3, 4) for _ in range(3))
    weight, bias = mica.randn(12, 4), mica.randn(12)
    for given in ((q, q, q), (q, k, k), (q, k, v)):
        for b in (bias, None):
            biases = (None,) * 3 if b is None else b.chunk(3)
            made = F._in_projection_packed(*given, weight, b)
            for ours, x, w, part in zip(made, given, weight.chunk(3), biases, strict=True):
                mica.testing.assert_close(ours, F.linear(x, w, part))
    w_q, w_k, w_v = weight.chunk(3)
    made = F._in_projection(q, k, v, w_q, w_k, w_v, *bias.chunk(3))
    for ours, x, w, b in zip(made, (q, k, v), (w_q, w_k, w_v), bias.chunk(3), strict=True):
        mica.testing.assert_close(ours, F.linear(x, w, b))
    with pytest.raises(AssertionError, match="expecting key weights shape"):
        F._in_projection(q, k, v, w_q, w_k[:2], w_v)


def test_ranks_of_attention():
    x = mica.ones(2, 3, 4)
    assert F._mha_shape_check(x, x, x, None, None, 2) is True
    assert F._mha_shape_check(x[0], x[0], x[0], mica.ones(3), mica.ones(2, 3, 3), 2) is False
    with pytest.raises(AssertionError, match=r"For unbatched \(2-D\) `query`, expected `key` and `value` to be 2-D"):
        F._mha_shape_check(x[0], x, x, None, None, 2)
    with pytest.raises(AssertionError, match="expected `key_padding_mask` to be `None` or 2-D"):
        F._mha_shape_check(x, x, x, mica.ones(3), None, 2)
    with pytest.raises(AssertionError, match=r"Expected `attn_mask` shape to be \(2, 3, 3\)"):
        F._mha_shape_check(x[0], x[0], x[0], None, mica.ones(1, 3, 3), 2)


def test_sizes():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        F._verify_batch_size([1, 3])
    F._verify_batch_size([1, 3, 2])
    with pytest.raises(ValueError, match="Expected more than 1 spatial element"):
        F._verify_spatial_size([2, 3, 1])
    image = mica.ones(1, 1, 2, 2)
    assert F._unpool_output_size(image, [2, 2], [2, 2], [0, 0], None) == [4, 4]
    assert F._unpool_output_size(image, [2, 2], [2, 2], [0, 0], [1, 1, 5, 3]) == [5, 3]
    with pytest.raises(ValueError, match=r"dim 0 must be between 2 and 6"):
        F._unpool_output_size(image, [2, 2], [2, 2], [0, 0], [6, 4])
    assert F._pair(3) == (3, 3) and F._Reduction.get_enum("sum") == 2
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert F._get_softmax_dim("softmax", 2, 3) == 1


def test_the_functions_of_recurrent_layers():
    layer, x, state = nn.LSTM(3, 4), mica.randn(5, 2, 3), (mica.zeros(1, 2, 4), mica.zeros(1, 2, 4))
    output, h, _ = mica._VF.lstm(x, state, layer._flat_weights, True, 1, 0.0, False, False, False)
    expected, (expected_h, _) = layer(x, state)
    assert output.equal(expected) and h.equal(expected_h)


class Largest(prune.BasePruningMethod):
    """A method as programs write them."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount):
        prune._validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t, default_mask):
        count = prune._compute_nparams_toprune(self.amount, t.nelement())
        prune._validate_pruning_amount(count, t.nelement())
        mask = default_mask.clone()
        mask.view(-1)[t.abs().view(-1).topk(count).indices] = 0
        return mask


def test_a_pruning_method_of_the_program():
    layer = nn.Linear(2, 2)
    Largest.apply(layer, "weight", 0.5)
    assert layer.weight.eq(0).sum() == 2
    with pytest.raises(ValueError, match="amount=9 should be smaller"):
        Largest.apply(layer, "bias", 9)
    with pytest.raises(ValueError, match="multidimensional"):
        prune._validate_structured_pruning(mica.ones(2))
    with pytest.raises(IndexError, match="Invalid index 3"):
        prune._validate_pruning_dim(mica.ones(2), 3)
    assert prune._compute_norm(mica.ones(2, 3), 1, -1).tolist() == [2, 2, 2]


def test_the_names_in_the_module_of_tensors():
    from mica import _tensor

    assert "Tensor" in dir(_tensor) and "add" in dir(mica.ones(1))
