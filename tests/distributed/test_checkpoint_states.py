"""States of models and optimizers by the names of parameters, whatever wraps the model."""

import mica
import mica.distributed.checkpoint as dcp
import pytest
from mica.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from states import equal

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def _trained(wrap=lambda model: model):
    mica.manual_seed(0)
    model = mica.nn.Sequential(mica.nn.Linear(3, 4), mica.nn.BatchNorm1d(4))
    model[0].bias.requires_grad_(False)
    groups = [{"params": [model[0].weight]}, {"params": [model[0].bias, *model[1].parameters()], "lr": 0.5}]
    return wrap(model), mica.optim.AdamW(groups, lr=0.25)


def test_states_have_names():
    model, optim = _trained()
    states, optim_states = get_state_dict(model, optim)
    assert list(states) == list(model.state_dict())
    assert list(optim_states["state"]) == ["0.weight", "1.weight", "1.bias"]
    assert [group["params"] for group in optim_states["param_groups"]] == [
        ["0.weight"],
        ["0.bias", "1.weight", "1.bias"],
    ]
    # The state was made by a step that changed nothing.
    assert mica.equal(states["0.weight"], _trained()[0][0].weight) and optim.param_groups[0]["lr"] == 0.25
    frozen = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))
    assert "0.bias" not in frozen and "0.weight" in frozen


def test_states_are_set_by_names_through_wrappers(tmp_path):
    model, optim = _trained(mica.compile)
    model(mica.randn(5, 3)).square().sum().backward()
    optim.step()
    states = get_state_dict(model, optim)
    assert next(iter(states[0])) == "0.weight"
    dcp.save(dict(zip(("model", "optim"), states, strict=True)), checkpoint_id=tmp_path)
    other, other_optim = _trained()
    model_state, optim_state = get_state_dict(other, other_optim)
    dcp.load({"model": model_state, "optim": optim_state}, checkpoint_id=tmp_path)
    keys = set_state_dict(other, other_optim, model_state_dict=model_state, optim_state_dict=optim_state)
    assert keys.missing_keys == [] and keys.unexpected_keys == []
    assert equal(dict(get_model_state_dict(other)), dict(states[0]))
    assert equal(other_optim.state_dict(), optim.state_dict())


def test_flat_states_and_several_optimizers():
    model, _ = _trained()
    first = mica.optim.SGD([model[0].weight], lr=0.1, momentum=0.5)
    second = mica.optim.Adam(model[1].parameters(), lr=0.2)
    for optim in (first, second):
        for group in optim.param_groups:
            for parameter in group["params"]:
                parameter.grad = mica.ones_like(parameter)
        optim.step()
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    for given in (None, options):
        saved = get_optimizer_state_dict(model, (first, second), options=given)
        others = (
            mica.optim.SGD([model[0].weight], lr=9.0, momentum=0.1),
            mica.optim.Adam(model[1].parameters(), lr=9.0),
        )
        set_optimizer_state_dict(model, others, saved, options=given)
        assert equal(others[0].state_dict(), first.state_dict()) and equal(others[1].state_dict(), second.state_dict())
    assert saved["param_groups.0.weight.momentum"] == 0.5 and "state.1.weight.exp_avg" in saved


def test_states_that_do_not_fit():
    model, optim = _trained()
    state = get_model_state_dict(model)
    del state["0.weight"]
    with pytest.raises(RuntimeError, match="Missing key"):
        set_model_state_dict(model, state)
    assert set_model_state_dict(model, state, options=StateDictOptions(strict=False)).missing_keys == ["0.weight"]
    optim_state = get_optimizer_state_dict(model, optim)
    del optim_state["state"]["0.weight"]
    with pytest.raises(RuntimeError, match="Missing optimizer state for parameter '0.weight'"):
        set_optimizer_state_dict(model, optim, optim_state)
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        get_model_state_dict(model, options=StateDictOptions(broadcast_from_rank0=True))
    with pytest.raises(RuntimeError, match="Optimizers are not passed in"):
        get_optimizer_state_dict(model, ())
