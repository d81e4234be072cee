"""What an export warns of, as torch does, and what of a program stays where unused nodes are removed."""

import warnings

import mica as torch
import pytest
from mica import nn
from mica.export import export


class Chooses(nn.Module):
    def forward(self, pred, x):
        return torch.cond(pred, lambda x: x.sin(), lambda x: x.cos(), (x,))


def test_a_condition_that_is_no_tensor():
    with pytest.warns(UserWarning, match="Pred is a Python constant. When used with torch.cond, it specializes on one"):
        program = export(Chooses(), (True, torch.ones(3)))
    assert torch.equal(program.module()(True, torch.ones(3)), torch.ones(3).sin())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Chooses()(False, torch.ones(3))  # a program that runs chooses as Python does


class Assigns(nn.Module):
    def __init__(self):
        super().__init__()
        self.values, self.named = [torch.ones(2), torch.ones(2), 3], {"a": torch.ones(2)}

    def forward(self, x):
        self.values[1] = self.values[1] + 1
        self.named["a"] = x * 1
        return x + self.values[1]


def test_tensors_that_are_assigned_to_items():
    module = Assigns()
    before = [*module.values, module.named["a"]]
    with pytest.warns(
        UserWarning, match=r"The tensor attributes self.values\[1\], self.named\['a'\] were assigned during export"
    ):
        export(module, (torch.ones(2),))
    assert all(a is b for a, b in zip(before, [*module.values, module.named["a"]], strict=True))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        x.sin()
        return x.sum() + self.count.sum()


def test_checks_of_inputs_stay_without_users():
    module = export(Counts(), (torch.ones(5),)).module()
    assert module.graph.eliminate_dead_code()  # the sine
    assert not module.graph.eliminate_dead_code()
    module.recompile()
    assert [module(torch.ones(5)).item() for _ in range(2)] == [6.0, 7.0]
    with pytest.raises(AssertionError, match="Guard failed"):
        module(torch.ones(4))
