"""torch.ao.pruning: masks over weights, and schedules of how much they leave."""

import copy
import json
from pathlib import Path

import mica as torch
import pruning_cases as cases
import pytest
from mica import nn
from mica.ao import pruning

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "pruning.json").read_text())


@pytest.mark.parametrize("name", cases.SPARSIFIERS)
def test_masks(name):
    assert cases.masks(torch, name) == RECORDED["masks"][name]


@pytest.mark.parametrize("name", RECORDED["levels"])
def test_levels(name):
    for ours, theirs in zip(cases.levels(torch, name), RECORDED["levels"][name], strict=True):
        assert ours == pytest.approx(theirs)


def masked(**kwargs):
    model, sparsifier = cases.model(torch), pruning.WeightNormSparsifier(**kwargs)
    sparsifier.prepare(model, [{"tensor_fqn": "2.0.weight"}])
    return model, sparsifier


def test_a_mask_holds_during_training_and_is_squashed():
    model, sparsifier = masked(sparsity_level=0.5, sparse_block_shape=(1, 4))
    sparsifier.step()
    layer = model[2][0]
    mask = layer.parametrizations.weight[0].mask
    assert sparsifier.state["2.0.weight"]["mask"] is mask and mask.sum() == 16
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(3, 6)).sum().backward()
    optimizer.step()
    assert (layer.weight[mask == 0] == 0).all() and (layer.weight[mask == 1] != 0).all()
    sparsifier.enable_mask_update = False
    layer.parametrizations.weight.original.data.neg_().mul_(torch.rand(4, 8))
    sparsifier.step()
    assert layer.parametrizations.weight[0].mask.equal(mask)
    sparsifier.squash_mask(("sparsity_level",), {"2.0": ("zeros_per_block",)})
    assert not hasattr(layer, "parametrizations") and (layer.weight == 0).sum() == 16
    assert layer.sparse_params == {"sparsity_level": 0.5, "zeros_per_block": 4}


def test_a_block_need_not_fit():
    model = nn.Sequential(nn.Linear(5, 3))
    sparsifier = pruning.WeightNormSparsifier(1.0, (2, 4), zeros_per_block=3)
    sparsifier.prepare(model, None)
    sparsifier.step()
    left = model[0].parametrizations.weight[0].mask
    # Blocks of 2 x 4, 2 x 1, 1 x 4 and one element: three smallest of each are gone.
    assert [int(part.sum()) for part in (left[:2, :4], left[:2, 4:], left[2:, :4], left[2:, 4:])] == [5, 0, 1, 0]


def test_state_moves_to_another_run():
    model, sparsifier = masked()
    sparsifier.step()
    state = copy.deepcopy(sparsifier.state_dict())
    assert "module" not in state["groups"][0]
    other, fresh = masked()
    fresh.load_state_dict(state)
    assert other[2][0].weight.equal(model[2][0].weight)
    assert fresh.groups[0]["module"] is other[2][0]


def test_a_masked_module_is_converted():
    class Small(nn.Linear):
        @classmethod
        def from_dense(cls, dense):
            made = cls(dense.in_features, dense.out_features)
            made.weight.data.copy_(dense.weight)
            return made

    model, sparsifier = masked()
    sparsifier.step()
    converted = sparsifier.convert(model, mapping={nn.Linear: Small})
    assert type(converted[2][0]) is Small and type(converted[0]) is nn.Linear
    assert converted[2][0].weight.equal(model[2][0].weight)


def test_paths():
    model = cases.model(torch)
    assert pruning.module_to_fqn(model, model[2][0]) == "2.0" and pruning.module_to_fqn(model, model) == ""
    assert pruning.module_to_fqn(model, nn.Linear(1, 1)) is None
    assert pruning.fqn_to_module(model, "2.0.weight") is model[2][0].weight
    assert pruning.fqn_to_module(model, "3.nothing") is None


def test_what_is_refused():
    for absent in (pruning.get_static_sparse_quantized_mapping, pruning.get_dynamic_sparse_quantized_mapping):
        with pytest.raises(NotImplementedError, match=r"torch.ao.nn.sparse, .* is absent"):
            absent()
    with pytest.raises(NotImplementedError, match="L-3 is not yet implemented"):
        pruning.WeightNormSparsifier(norm=3)
    for kwargs, words in (({"zeros_per_block": 5}, "cannot be more"), ({"zeros_per_block": -1}, "should be positive")):
        with pytest.raises(ValueError, match=words):
            masked(**kwargs)[1].step()
    with pytest.raises(AssertionError, match="tensor_fqn is a required argument"):
        pruning.WeightNormSparsifier().prepare(cases.model(torch), [{"sparsity_level": 0.1}])
    with pytest.raises(ValueError, match="odd number"):
        sparsifier = pruning.NearlyDiagonalSparsifier(2)
        sparsifier.prepare(cases.model(torch), None)
        sparsifier.step()
    with pytest.raises(TypeError, match="is not an instance of torch.ao.pruning.BaseSparsifier"):
        pruning.LambdaSL.__mro__[1](3)
    _, sparsifier = masked()
    with pytest.raises(ValueError, match="Expected variable of length 1, but got 2"):
        pruning.CubicSL(sparsifier, init_sl=[0.0, 0.1])
    schedule = pruning.CubicSL(sparsifier)
    with pytest.warns(UserWarning, match="before `sparsifier.step"):
        schedule.step()
    with pytest.warns(UserWarning, match="get_last_sl"):
        schedule.get_sl()
