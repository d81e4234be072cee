"""An error of the engine's names the module of the model in which it happened."""

import mica as torch
import pytest
from mica import nn


class Block(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        return self.linear(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(4, 8), Block(8, 8), Block(6, 2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_an_error_names_the_module_inside_the_model():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        Net()(torch.randn(2, 4))
    assert str(caught.value).endswith("\n  in layers.2.linear: Linear(in_features=6, out_features=2, bias=True)")


def test_a_layer_alone_names_itself():
    with pytest.raises(RuntimeError, match="in_features=3") as caught:
        nn.Linear(4, 2)(torch.randn(2, 3))
    assert str(caught.value).endswith("\n  in Linear(in_features=4, out_features=2, bias=True)")


def test_modules_with_hooks_and_sequences_too():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(9, 2)))
    model[1].register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match=r"\n  in 1\.1: Linear\(in_features=9"):
        model(torch.randn(2, 4))


def test_a_layer_that_checks_in_python_too():
    with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal.*\n  in 0\.0: LSTM\(10, 20\)$"):
        nn.Sequential(nn.Sequential(nn.LSTM(10, 20)))(torch.randn(5, 3, 9))
    with pytest.raises(NotImplementedError, match="missing the required"):
        type("Empty", (nn.Module,), {})()(1)


def test_a_program_s_own_errors_stay_as_they_are():
    class Own(nn.Module):
        def forward(self, x):
            raise ValueError("mine")

    with pytest.raises(ValueError) as caught:
        nn.Sequential(Own())(1)
    assert caught.value.args == ("mine",)


def test_a_caught_error_does_not_taint_the_next_one():
    with pytest.raises(RuntimeError):
        nn.Linear(4, 2)(torch.randn(2, 3))

    class Own(nn.Module):
        def forward(self, x):
            raise RuntimeError("something else")

    with pytest.raises(RuntimeError) as caught:
        Own()(1)
    assert str(caught.value) == "something else"
