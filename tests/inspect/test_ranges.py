"""Which numbers of a model leave the range of a format, against casting them."""

import math

import mica
import pytest
from mica import nn


class Scaled(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return x * self.by


def model():
    mica.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), Scaled(3e5), nn.ReLU(), Scaled(1e-9), nn.Linear(32, 4))


def test_shares_are_those_of_a_cast():
    net, x, seen = model(), mica.randn(64, 16), {}
    for name, module in net.named_children():
        module.register_forward_hook(lambda m, i, out, name=name: seen.__setitem__(name, out.detach()))
    with mica.inspect.ranges(net) as audit:
        net(x).pow(2).mean().backward()
    rows = {r["layer"]: r for r in audit.layers("activations")}
    assert list(rows) == ["0", "1", "2", "3", "4"] and rows["1"]["module"] == "Scaled"
    for name, out in seen.items():
        row, nonzero = rows[name], out[out != 0]
        assert row["largest"] == nonzero.abs().max().item() and row["smallest"] == nonzero.abs().min().item()
        for dtype in (mica.float16, mica.bfloat16, mica.float8_e5m2):
            held = nonzero.to(dtype).float()
            share = row["formats"][str(dtype).rpartition(".")[2]]
            assert share["overflow"] == held.isinf().sum().item() / nonzero.numel(), (name, dtype)
            assert share["underflow"] == (held == 0).sum().item() / nonzero.numel(), (name, dtype)
            normal = mica.finfo(dtype).smallest_normal
            small = ((nonzero.abs() < normal) & (held != 0)).sum().item()
            assert share["subnormal"] == small / nonzero.numel()
    assert rows["1"]["formats"]["float16"]["overflow"] > 0.5 and rows["1"]["formats"]["bfloat16"]["overflow"] == 0
    # Saturating formats have no infinity, but values at the end of their range count all the same.
    over = (seen["1"].abs() >= 464).sum().item() / (seen["1"] != 0).sum().item()
    assert rows["1"]["formats"]["float8_e4m3fn"]["overflow"] == over
    assert audit.breaks(mica.float16)[0]["layer"] in ("1", "2")


def test_gradients_of_weights_and_activations_are_seen_and_hooks_are_gone():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with mica.inspect.ranges(net) as audit:
        for _ in range(3):
            net(mica.randn(2, 4)).sum().backward()
    rows = {r["layer"]: r for r in audit.layers("gradients")}
    # Three calls, each with the gradients of the output, of the weight and of the bias.
    assert rows["0"]["numbers"] == 3 * (8 + 16 + 4) and rows["1"]["numbers"] == 3 * 8
    before = audit.to_dict()
    net(mica.randn(2, 4)).sum().backward()
    assert audit.to_dict() == before


@pytest.mark.parametrize(("size", "dtype"), [(1e-9, mica.float16), (2e-9, mica.float16), (1e-6, mica.float8_e5m2)])
def test_the_loss_scale_holds(size, dtype):
    x = nn.Linear(8, 8, bias=False)
    with mica.inspect.ranges(x, dtypes=[dtype]) as audit:
        (x(mica.randn(16, 8)) * size).sum().backward()
    scale = audit.loss_scale(dtype)
    grad = x.weight.grad
    held = (grad * scale).to(dtype).float()
    assert math.frexp(scale)[0] == 0.5 and scale > 1
    assert held.isfinite().all() and not ((held == 0) & (grad != 0)).any()
    assert ((grad.to(dtype).float() == 0) & (grad != 0)).any()
    row = audit.to_dict()["formats"][str(dtype).rpartition(".")[2]]
    assert row["zero_with"] == 0 and row["loss_scale"] == scale


def test_gradients_that_are_too_large_ask_for_a_scale_below_one():
    x = nn.Linear(4, 4, bias=False)
    with mica.inspect.ranges(x, dtypes=[mica.float16]) as audit:
        (x(mica.ones(1, 4)) * 1e6).sum().backward()
    scale = audit.loss_scale(mica.float16)
    assert scale < 1 and (x.weight.grad * scale).half().isfinite().all()


def test_nothing_is_lost_and_nothing_is_seen():
    net = nn.Linear(4, 4)
    with mica.inspect.ranges(net) as audit, mica.no_grad():
        net(mica.zeros(0, 4))
        net(mica.full((1, 4), math.nan))
    assert audit.loss_scale(mica.bfloat16) is None
    (row,) = audit.layers("activations")
    assert row["not_finite"] == 4 and row["nonzero"] == 0 and row["largest"] == 0
    assert "weights" in str(audit)
    with mica.inspect.ranges(net) as audit:
        net(mica.ones(1, 4)).sum().backward()
    assert audit.loss_scale(mica.bfloat16) == 1.0


def test_what_it_refuses():
    with pytest.raises(TypeError, match="the model is a Module, not int"):
        mica.inspect.ranges(3)
    with pytest.raises(TypeError, match="not a floating-point dtype"):
        mica.inspect.ranges(nn.Linear(1, 1), dtypes=[mica.int8])
    audit = mica.inspect.ranges(nn.Linear(1, 1), dtypes=[mica.float16])
    with pytest.raises(ValueError, match="was not asked about"):
        audit.loss_scale(mica.bfloat16)
    with pytest.raises(ValueError, match="kind is"):
        audit.layers("biases")
