"""Pruned parameters: masks, hooks, states, and pruning on top of pruning."""

import mica
import pytest
from mica import nn
from mica.nn.utils import prune


def linear():
    layer = nn.Linear(4, 3)
    with mica.no_grad():
        layer.weight.copy_(mica.arange(12.0).view(3, 4) - 5.5)
    return layer


def test_the_weakest_go_first():
    layer = prune.l1_unstructured(linear(), "weight", amount=4)
    assert layer.weight_mask.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    assert isinstance(layer.weight_orig, nn.Parameter) and not isinstance(layer.weight, nn.Parameter)
    assert sorted(layer.state_dict()) == ["bias", "weight_mask", "weight_orig"]
    assert prune.is_pruned(nn.Sequential(layer)) and not prune.is_pruned(linear())
    x = mica.randn(2, 4)
    mica.testing.assert_close(layer(x), x @ (layer.weight_orig * layer.weight_mask).T + layer.bias)
    layer(x).sum().backward()
    assert (layer.weight_orig.grad[1] == 0).all() and (layer.weight_orig.grad[0] != 0).all()
    with mica.no_grad():
        layer.weight_orig.add_(1)
    layer(x)
    assert layer.weight[1].abs().sum() == 0 and layer.weight[0, 0] == -4.5
    other = linear()
    prune.identity(other, "weight").load_state_dict(layer.state_dict())
    mica.testing.assert_close(other(x), layer(x))


def test_again_and_for_good():
    layer = prune.l1_unstructured(linear(), "weight", amount=0.25)
    prune.ln_structured(layer, "weight", amount=1, n=2, dim=1)
    prune.random_unstructured(layer, "weight", amount=2)
    hooks = list(layer._forward_pre_hooks.values())
    assert len(hooks) == 1 and isinstance(hooks[0], prune.PruningContainer) and len(hooks[0]) == 3
    before = layer.weight.detach().clone()
    assert prune.remove(layer, "weight") is layer
    assert isinstance(layer.weight, nn.Parameter) and sorted(layer.state_dict()) == ["bias", "weight"]
    mica.testing.assert_close(layer.weight.detach(), before)
    assert not prune.is_pruned(layer)
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        prune.remove(layer, "weight")


def test_second_passes_prune_what_is_left():
    layer = linear()
    prune.l1_unstructured(layer, "weight", amount=6)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    assert layer.weight_mask.sum() == 3
    prune.custom_from_mask(layer, "weight", mica.zeros(3, 4))
    assert layer.weight.abs().sum() == 0


def test_channels():
    layer = prune.ln_structured(linear(), "weight", amount=1, n=1, dim=0)
    assert layer.weight_mask.sum(1).tolist() == [4, 0, 4]
    mica.manual_seed(0)
    layer = prune.random_structured(linear(), "weight", amount=2, dim=-1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0, 0, 3, 3]


def test_many_parameters_as_one():
    a, b = linear(), linear()
    with mica.no_grad():
        b.weight.mul_(100)
    prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=0.5)
    assert a.weight_mask.sum() == 0 and b.weight_mask.sum() == 12
    scores = mica.arange(12.0).view(3, 4)
    c = prune.l1_unstructured(linear(), "weight", 3, importance_scores=scores)
    assert c.weight_mask.view(-1).tolist() == [0, 0, 0] + [1] * 9
    mica.testing.assert_close(
        prune.L1Unstructured(2).prune(mica.tensor([3.0, -1.0, 2.0])), mica.tensor([3.0, 0.0, 0.0])
    )


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: prune.l1_unstructured(m, "weight", -1), ValueError, "should either be a float in the range"),
        (lambda m: prune.l1_unstructured(m, "weight", 1.5), ValueError, "should either be a float in the range"),
        (lambda m: prune.l1_unstructured(m, "weight", "a"), TypeError, "Invalid type for amount"),
        (
            lambda m: prune.l1_unstructured(m, "weight", 13),
            ValueError,
            "should be smaller than the number of parameters",
        ),
        (lambda m: prune.ln_structured(m, "bias", 1, 2, 0), ValueError, "only be applied to multidimensional tensors"),
        (lambda m: prune.ln_structured(m, "weight", 1, 2, 5), IndexError, "Invalid index 5"),
        (lambda m: prune.l1_unstructured(m, "weight", 1, mica.ones(2)), AssertionError, "should have the same shape"),
        (
            lambda m: prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=1),
            TypeError,
            'Only "unstructured"',
        ),
        (lambda m: prune.global_unstructured(3, prune.L1Unstructured), TypeError, "is not an Iterable"),
    ],
)
def test_refusals_change_nothing(call, error, words):
    layer = linear()
    with pytest.raises(error, match=words):
        call(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"] and isinstance(layer.weight, nn.Parameter)
