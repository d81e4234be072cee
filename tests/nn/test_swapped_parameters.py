"""Modules whose parameters are swapped on conversion: the objects stay, what they stand for changes."""

import mica as torch
import pytest
from mica import nn


@pytest.fixture(autouse=True)
def swapping():
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def test_conversions_keep_objects():
    module = nn.Linear(2, 2)
    weight = module.weight
    module.double()
    assert module.weight is weight and weight.dtype == torch.float64
    module(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    module.float()
    assert module.weight is weight and weight.dtype == weight.grad.dtype == torch.float32
    assert nn.Linear(2, 2, device="meta").to_empty(device="cpu").weight.device.type == "cpu"


def test_load_state_dict():
    module, other = nn.Linear(2, 2), nn.Linear(2, 2)
    weight = module.weight
    module.load_state_dict(other.state_dict())
    assert module.weight is weight and torch.equal(weight, other.weight)
    module.load_state_dict(nn.Linear(2, 2).double().state_dict(), assign=True)
    assert module.weight is weight and weight.dtype == torch.float64 and isinstance(weight, nn.Parameter)
    with pytest.raises(RuntimeError, match="size mismatch"):
        module.load_state_dict(nn.Linear(2, 3).state_dict())


def test_a_graph_of_before_is_refused():
    module = nn.Linear(2, 2)
    out = module(torch.ones(1, 2))
    module.double()
    with pytest.raises(RuntimeError, match="AccumulateGrad node that was poisoned by swap_tensors"):
        out.sum().backward()


def test_tensors_that_others_hold_are_not_swapped():
    module = nn.Linear(2, 2)
    view = module.weight.view(4)
    with pytest.raises(RuntimeError, match=r"_apply\(\): Couldn't swap Linear.weight") as error:
        module.double()
    assert "Expected use_count of t1 to be 1 or 2" in str(error.value.__cause__)
    assert module.weight.dtype == torch.float32 and view.shape == (4,)
    with pytest.raises(RuntimeError, match="weakref"):
        import weakref

        kept = torch.ones(2)
        held = weakref.ref(kept)
        torch.utils.swap_tensors(kept, torch.ones(2))
        del held


class Answering(torch.Tensor):
    """Says itself what becomes of it where it is loaded into a module."""

    answer = staticmethod(lambda given: torch.Tensor(given.detach()).as_subclass(torch.Tensor) * 2)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return cls.answer(args[1]) if func is torch.Tensor.module_load else func(*args, **(kwargs or {}))


class Returning(Answering):
    answer = staticmethod(lambda given: given)


@pytest.mark.parametrize("assign", [False, True])
def test_the_class_of_what_is_loaded_is_asked(swapping, assign):
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.load_state_dict({"weight": torch.ones(2, 2).as_subclass(Answering)}, assign=assign)
    assert type(layer.weight) is torch.nn.Parameter and layer.weight.tolist() == [[2, 2], [2, 2]]
    with pytest.raises(RuntimeError, match=r'(?s)While swapping the parameter named "weight".*one of self or other'):
        layer.load_state_dict({"weight": torch.ones(2, 2).as_subclass(Returning)}, assign=assign)
    assert layer.weight.tolist() == [[2, 2], [2, 2]]


class Twice(torch.Tensor):
    """A tensor that stands for two times another one."""

    @staticmethod
    def __new__(cls, half):
        return torch.Tensor._make_wrapper_subclass(cls, half.shape, dtype=half.dtype)

    def __init__(self, half):
        self.half_of = half

    def __tensor_flatten__(self):
        return ["half_of"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["half_of"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = torch.utils._pytree.tree_map_only(Twice, lambda x: x.half_of, (args, kwargs or {}))
        result = function(*plain[0], **plain[1])
        return cls(result) if function is torch.ops.aten.detach.default else result * 2


class Wrapping(nn.Module):
    def forward(self, x):
        return x

    def right_inverse(self, x):
        return Twice(x / 2)


@pytest.mark.parametrize("asked", [True, False])
def test_parametrizations_whose_originals_wrap_tensors(asked):
    torch.__future__.set_swap_module_params_on_conversion(asked)
    module = nn.Linear(2, 2)
    before, weight = module.weight.detach().clone(), module.weight
    nn.utils.parametrize.register_parametrization(module, "weight", Wrapping())
    original = module.parametrizations.weight.original
    assert original is weight and type(original) is Twice and isinstance(original, nn.Parameter)
    assert original.requires_grad and torch.equal(original.half_of, before / 2)
    assert type(module.weight) is Twice
