"""state_dict and load_state_dict: keys, metadata, hooks, and everything that can be wrong with what is loaded."""

import gc
from collections import OrderedDict

import mica
import pytest
from mica import nn


def net():
    made = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    made.register_buffer("steps", mica.zeros(()))
    made.register_buffer("scratch", mica.zeros(1), persistent=False)
    return made


def test_keys_values_and_metadata():
    module = net()
    state = module.state_dict()
    assert type(state) is OrderedDict
    assert list(state) == ["steps", "0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(state._metadata) == ["", "0", "1", "2"] and state._metadata["0"] == {"version": 1}
    assert not state["0.weight"].requires_grad and state["0.weight"].data_ptr() == module[0].weight.data_ptr()
    assert module.state_dict(keep_vars=True)["0.weight"] is module[0].weight
    into = {}
    assert module.state_dict(destination=into, prefix="m.") is into and "m.0.weight" in into
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert "p.steps" in module.state_dict({}, "p.")


def test_loading_copies_in_place():
    source, target = net(), net()
    weight = target[0].weight
    result = target.load_state_dict(source.state_dict())
    assert repr(result) == "<All keys matched successfully>" and result.missing_keys == []
    assert target[0].weight is weight and mica.equal(weight, source[0].weight)


def test_loading_leaves_nothing_to_the_collector():
    target, state = net(), net().state_dict()
    gc.collect()
    target.load_state_dict(state)
    assert gc.collect() == 0


def test_loading_by_assignment():
    source, target = net(), net()
    target[2].requires_grad_(False)
    state = source.state_dict()
    target.load_state_dict(state, assign=True)
    assert target[0].weight.data_ptr() == source[0].weight.data_ptr() and target[0].weight.requires_grad
    assert isinstance(target[2].weight, nn.Parameter) and not target[2].weight.requires_grad
    meta = nn.Linear(2, 3, device="meta")
    meta.load_state_dict(nn.Linear(2, 3).state_dict(), assign=True)
    assert not meta.weight.is_meta


def test_everything_that_is_wrong_is_said_at_once():
    state = net().state_dict()
    state["0.weight"] = mica.zeros(3, 5)
    state["extra"] = mica.zeros(1)
    state["1.x.y"] = mica.zeros(1)
    state["2.bias"] = 3
    del state["0.bias"]
    with pytest.raises(RuntimeError) as error:
        net().load_state_dict(state)
    assert str(error.value) == (
        "Error(s) in loading state_dict for Sequential:\n"
        '\tMissing key(s) in state_dict: "0.bias". \n'
        '\tUnexpected key(s) in state_dict: "extra", "1.x.y". \n'
        "\tsize mismatch for 0.weight: copying a param with shape torch.Size([3, 5]) from checkpoint, the shape in "
        "current model is torch.Size([3, 2]).\n"
        '\tWhile copying the parameter named "2.bias", expected torch.Tensor or Tensor-like object from checkpoint but '
        "received <class 'int'>\n"
        "\tload_state_dict(..., strict=False) loads the keys that both have and returns the others.\n"
        "\tBuild the model with the sizes it was saved with, or drop these keys and load with strict=False."
    )


def test_keys_that_differ_are_returned_without_strict():
    state = net().state_dict()
    state["extra"] = mica.zeros(1)
    del state["0.bias"]
    result = net().load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias"] and result.unexpected_keys == ["extra"]
    assert repr(result) == "_IncompatibleKeys(missing_keys=['0.bias'], unexpected_keys=['extra'])"
    assert tuple(result) == (["0.bias"], ["extra"])


def test_numbers_of_old_files_and_what_is_no_dict():
    module = net()
    state = module.state_dict()
    state["steps"] = mica.tensor([7.0])
    module.load_state_dict(state)
    assert module.steps.item() == 7
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got <class 'list'>."):
        module.load_state_dict([])


def test_meta_parameters_warn_when_values_are_copied():
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter in the checkpoint to a meta"):
        nn.Linear(2, 3, bias=False, device="meta").load_state_dict(nn.Linear(2, 3, bias=False).state_dict())


def test_a_copy_that_fails_is_reported():
    class Stubborn(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func.__name__ == "copy_":
                raise ValueError("no")
            return super().__torch_function__(func, types, args, kwargs or {})

    state = OrderedDict(weight=mica.ones(1, 1).as_subclass(Stubborn), bias=mica.ones(1))
    with pytest.raises(RuntimeError, match=r'While copying the parameter named "weight", whose dimensions .*\(\'no\','):
        nn.Linear(1, 1).load_state_dict(state)


def test_extra_state():
    class Counting(nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    source = nn.Sequential(Counting())
    source[0].count = 4
    state = source.state_dict()
    assert list(state) == ["0._extra_state"]
    target = nn.Sequential(Counting())
    target.load_state_dict(state)
    assert target[0].count == 4
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        target.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "0._extra_state"'):
        nn.Sequential(nn.ReLU()).load_state_dict(state)


def test_versions_reach_the_module_that_loads():
    class Renamed(nn.Linear):
        _version = 2

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
            if local_metadata.get("version", 1) < 2 and prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    module = Renamed(1, 1)
    assert module.state_dict()._metadata[""]["version"] == 2
    module.load_state_dict({"w": mica.full((1, 1), 5.0), "bias": mica.zeros(1)})
    assert module.weight.item() == 5


def test_hooks_of_saving_and_loading():
    module, log = nn.Linear(1, 1), []

    def rename(m, state, prefix, metadata):
        state[prefix + "w"] = state.pop(prefix + "weight")

    module.register_state_dict_pre_hook(lambda m, prefix, keep: log.append("saving"))
    module.register_state_dict_post_hook(rename)
    state = module.state_dict()
    assert log == ["saving"] and set(state) == {"w", "bias"}
    with pytest.raises(RuntimeError, match="Cannot register the same function"):
        module._register_state_dict_hook(rename)

    def undo(m, state, prefix, *_):
        assert m is module
        state[prefix + "weight"] = state.pop(prefix + "w")

    module.register_load_state_dict_pre_hook(undo)
    module.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    module.load_state_dict({"w": mica.ones(1, 1)})
    assert module.weight.item() == 1 and "w" in state
    module.register_load_state_dict_post_hook(lambda m, keys: 3)
    with pytest.raises(AssertionError, match="are not expected to return new"):
        module.load_state_dict({"w": mica.ones(1, 1), "bias": mica.ones(1)})
    module.register_state_dict_post_hook(lambda *_: 3)
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        module.state_dict()


def test_an_old_hook_may_replace_the_dict():
    module = nn.Linear(1, 1)
    module._register_state_dict_hook(lambda m, state, prefix, metadata: {"only": 1})
    assert module.state_dict() == {"only": 1}


def test_prefixes_are_taken_off():
    from mica.nn.modules.utils import consume_prefix_in_state_dict_if_present

    parallel = nn.Module()
    parallel.module = nn.Linear(1, 1)
    state = parallel.state_dict()
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["weight", "bias"] and list(state._metadata) == [""]
    assert repr(nn.Linear(1, 1).load_state_dict(state)) == "<All keys matched successfully>"


def test_arguments_of_factories():
    assert nn.factory_kwargs({"dtype": mica.float64, "factory_kwargs": {"device": "cpu"}}) == {
        "dtype": mica.float64,
        "device": "cpu",
    }
    for wrong in ({"x": 1}, {"dtype": mica.float64, "factory_kwargs": {"dtype": mica.float64}}):
        with pytest.raises(TypeError):
            nn.factory_kwargs(wrong)
