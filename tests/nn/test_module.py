"""nn.Module: walking, conversion, modes, text, copies."""

import copy
import inspect
import pickle
import random

import mica
import pytest
from mica import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(mica.ones(2))
        self.register_buffer("steps", mica.zeros(2))
        self.register_buffer("scratch", mica.zeros(1), persistent=False)
        self.child = nn.Linear(2, 3)
        self.number = 5

    def forward(self, x, scale=1):
        return self.child(x * self.weight) * scale


# ---- walking


def shared():
    net = Net()
    net.again = net.child
    net.tied = net.weight
    net.none = None
    net.register_parameter("absent", None)
    return net


def test_names_and_duplicates():
    net = shared()
    assert [n for n, _ in net.named_parameters()] == ["weight", "child.weight", "child.bias"]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)] == [
        "weight",
        "tied",
        "child.weight",
        "child.bias",
        "again.weight",
        "again.bias",
    ]
    assert [n for n, _ in net.named_parameters("p", recurse=False)] == ["p.weight"]
    assert [n for n, _ in net.named_buffers()] == ["steps", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "child"]
    assert [n for n, _ in net.named_modules(prefix="m", remove_duplicate=False)] == ["m", "m.child", "m.again"]
    assert [n for n, _ in net.named_children()] == ["child"]
    assert len(list(net.parameters())) == 3 and len(list(net.buffers())) == 2 and len(list(net.modules())) == 2
    assert net.get_submodule("") is net and net.get_submodule("child") is net.child
    assert net.get_parameter("child.weight") is net.child.weight and net.get_buffer("steps") is net.steps
    net.set_submodule("child", nn.ReLU())
    assert isinstance(net.child, nn.ReLU)


def test_apply_visits_children_first():
    seen = []
    net = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "Sequential", "Sequential"]


# ---- conversion


def test_conversions_keep_parameters_and_convert_gradients():
    net = Net()
    net.register_buffer("count", mica.tensor(3))
    net(mica.ones(1, 2)).sum().backward()
    weight = net.weight
    assert net.double() is net
    assert net.weight is weight and weight.dtype == mica.float64 and weight.grad.dtype == mica.float64
    assert net.steps.dtype == mica.float64 and net.count.dtype == mica.int64
    assert net.half().weight.dtype == mica.float16 and net.bfloat16().weight.dtype == mica.bfloat16
    assert net.float().to(mica.float64).weight.dtype == mica.float64
    assert net.to(mica.ones(1)).weight.dtype == mica.float32
    assert net.to("cpu", mica.float64, True).weight.dtype == mica.float64
    assert net.type(mica.float32).weight.dtype == mica.float32
    assert net.cpu().weight.device.type == "cpu"


def test_memory_formats_apply_to_images():
    module = nn.ParameterList([mica.ones(2, 3, 4, 5), mica.ones(2, 3)])
    module.to(memory_format=mica.channels_last)
    assert module[0].is_contiguous(memory_format=mica.channels_last) and module[1].is_contiguous()


def test_meta_modules():
    net = nn.Linear(2, 3, device="meta")
    assert net.weight.is_meta
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data! Please use torch.nn.Mod"):
        net.to("cpu")
    before = net.weight
    net.to_empty(device="cpu")
    assert net.weight is not before and not net.weight.is_meta and net.weight.requires_grad
    assert isinstance(nn.utils.skip_init(nn.Linear, 2, 3).weight, nn.Parameter)


def test_overwriting_parameters_on_conversion():
    import mica.__future__ as settings

    net = nn.Linear(1, 1)
    before = net.weight
    settings.set_overwrite_module_params_on_conversion(True)
    try:
        net.double()
    finally:
        settings.set_overwrite_module_params_on_conversion(False)
    assert net.weight is not before and before.dtype == mica.float32


def test_modes_and_gradients():
    net = nn.Sequential(nn.Dropout(), Net())
    assert net.training and net.eval() is net and not net[0].training and not net[1].child.training
    net.train()
    net[1](mica.ones(1, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert mica.equal(net[1].weight.grad, mica.zeros(2))
    net.zero_grad()
    assert net[1].weight.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_share_memory():
    net = nn.Linear(2, 2).share_memory()
    assert net.weight.is_shared()


# ---- text, copies


def test_reprs_of_nested_and_multiline_modules():
    class Two(nn.Module):
        def extra_repr(self):
            return "first\nsecond"

    assert repr(Two()) == "Two(\n  first\n  second\n)"
    outer = nn.Sequential(Two())
    assert repr(outer) == "Sequential(\n  (0): Two(\n    first\n    second\n  )\n)"
    assert repr(nn.Module()) == "Module()"


def test_dir_lists_members_but_no_numbers():
    names = dir(nn.Sequential(nn.ReLU()))
    assert "forward" in names and "0" not in names
    assert {"weight", "steps", "child", "number"} <= set(dir(Net()))


def test_deepcopy_and_pickle():
    net = shared()
    net.tied = net.weight
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.tied is other.weight and other.weight is not net.weight and other.again is other.child
        assert mica.equal(other(mica.ones(1, 2)), net(mica.ones(1, 2)))
    shallow = copy.copy(net)
    assert shallow.weight is net.weight


def test_pickles_of_old_get_what_came_later():
    net = Net()
    state = net.__getstate__()
    for name in ("_forward_hooks_with_kwargs", "_backward_pre_hooks", "_non_persistent_buffers_set"):
        del state[name]
    revived = Net.__new__(Net)
    revived.__setstate__(state)
    assert revived._non_persistent_buffers_set == set() and revived(mica.ones(1, 2)).shape == (1, 3)


def test_registration_hooks_see_everything():
    from mica.nn.modules import module as hooks

    seen = []
    handles = [
        hooks.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)),
        hooks.register_module_buffer_registration_hook(lambda m, name, b: seen.append(name)),
        hooks.register_module_module_registration_hook(lambda m, name, s: seen.append(name)),
    ]
    try:
        Net()
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["weight", "steps", "scratch", "weight", "bias", "child"]
    Net()
    assert len(seen) == 6


def test_lazy_modules():
    lazy = nn.LazyLinear(3)
    assert repr(lazy.weight) == "<UninitializedParameter>" and lazy.has_uninitialized_params()
    for name in ("numel", "dim", "item", "__len__", "abs"):
        with pytest.raises(ValueError, match="uninitialized parameter"):
            getattr(lazy.weight, name)()
    with pytest.raises(ValueError, match="uninitialized parameter"):
        mica.optim.Adagrad(lazy.parameters())
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        _ = lazy.weight.shape
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        lazy.weight + 1
    lazy.double()
    assert lazy(mica.ones(2, 5, dtype=mica.float64)).shape == (2, 3)
    assert type(lazy) is nn.Linear and lazy.in_features == 5 and lazy.weight.dtype == mica.float64
    assert not lazy._forward_pre_hooks and not lazy._load_state_dict_pre_hooks
    loaded = nn.LazyLinear(3)
    loaded.load_state_dict(nn.Linear(4, 3).state_dict())
    assert loaded.weight.shape == (3, 4) and loaded(mica.ones(1, 4)).shape == (1, 3)
    assert type(copy.deepcopy(nn.LazyLinear(2)).weight) is nn.UninitializedParameter
    assert type(pickle.loads(pickle.dumps(nn.LazyLinear(2))).weight) is nn.UninitializedParameter


def test_signatures_of_modules_and_their_classes():
    class Called(nn.Module):
        def __call__(self, x, y=2):
            return x

    assert str(inspect.signature(nn.ReLU())) == "(*args, **kwargs)"
    assert str(inspect.signature(nn.ReLU)) == "(inplace=False)"
    assert str(inspect.signature(Called())) == "(x, y=2)"


class NamesItsModules(nn.Module):
    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield from super().named_modules(memo, prefix, remove_duplicate)


class NamesItsParameters(nn.Module):
    def named_parameters(self, *args, **kwargs):
        yield "alone", "a parameter"


def test_parameters_are_those_with_names():
    for seed in range(200):
        rng = random.Random(seed)
        parameters = [nn.Parameter(mica.ones(1)) for _ in range(6)]
        modules = []
        for _ in range(10):
            module = rng.choice([nn.Module, nn.Module, NamesItsModules, NamesItsParameters])()
            for i in range(rng.randint(0, 3)):
                module.register_parameter(f"p{i}", rng.choice([*parameters, None]))
            for i in range(rng.randint(0, 3) if modules else 0):
                module.add_module(f"m{i}", rng.choice([*modules, None]))
            modules.append(module)
        for module in modules:
            for recurse in (True, False):
                named = [each for _, each in module.named_parameters(recurse=recurse)]
                found = list(module.parameters(recurse=recurse))
                assert len(found) == len(named) and all(a is b for a, b in zip(found, named, strict=True))
