"""Activations beyond their samples: edge values, parameters, in-place forms, dropout, messages. Values are torch's."""

import math

import mica as torch
import mica.nn.functional as F
import numpy as np
import pytest

inf, nan = math.inf, math.nan
T = torch.tensor
EDGES = [-inf, -100.0, -1.0, -0.0, 0.0, 1.0, 100.0, inf, nan]

# Values at EDGES in float64, with 16 digits where the function is transcendental at -1 or 1.
AT_EDGES = {
    "relu": [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 100.0, inf, nan],
    "relu6": [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 6.0, 6.0, nan],
    "hardtanh": [-1.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 1.0, nan],
    "hardsigmoid": [0.0, 0.0, 1 / 3, 0.5, 0.5, 2 / 3, 1.0, 1.0, nan],
    "hardswish": [nan, 0.0, -1 / 3, 0.0, 0.0, 2 / 3, 100.0, inf, nan],
    "elu": [-1.0, -1.0, math.expm1(-1), 0.0, 0.0, 1.0, 100.0, inf, nan],
    "celu": [-1.0, -1.0, math.expm1(-1), 0.0, 0.0, 1.0, 100.0, inf, nan],
    "leaky_relu": [-inf, -1.0, -0.01, 0.0, 0.0, 1.0, 100.0, inf, nan],
    "softplus": [0.0, math.exp(-100), math.log1p(math.exp(-1)), math.log(2), math.log(2), 1 + math.log1p(math.exp(-1)),
                 100.0, inf, nan],
    "logsigmoid": [-inf, -100.0, -1 - math.log1p(math.exp(-1)), -math.log(2), -math.log(2), -math.log1p(math.exp(-1)),
                   -math.exp(-100), 0.0, nan],
    "silu": [nan, -100 / (1 + math.exp(100)), -1 / (1 + math.e), 0.0, 0.0, 1 / (1 + math.exp(-1)), 100.0, inf, nan],
    "gelu": [nan, 0.0, -0.5 * math.erfc(math.sqrt(0.5)), 0.0, 0.0, 1 - 0.5 * math.erfc(math.sqrt(0.5)), 100.0, inf, nan],
    "softsign": [nan, -100 / 101, -0.5, 0.0, 0.0, 0.5, 100 / 101, nan, nan],
    "tanhshrink": [-inf, -99.0, -1 + math.tanh(1), 0.0, 0.0, 1 - math.tanh(1), 99.0, inf, nan],
}  # fmt: skip


@pytest.mark.parametrize("name", AT_EDGES)
def test_edge_values(name):
    f = getattr(F, name)
    for dtype, rtol in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        # One at a time, and as a row long enough for the vector loop.
        for x in (T(EDGES, dtype=dtype), T(EDGES * 20, dtype=dtype)):
            expected = np.array(AT_EDGES[name] * (x.numel() // len(EDGES)))
            np.testing.assert_allclose(f(x).tolist(), expected, rtol=rtol, atol=1e-40)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "elu", "softplus", "mish", "hardswish", "logsigmoid", "selu"])
def test_sixteen_bit_floats_are_rounded_once(name, dtype):
    x = torch.linspace(-8, 8, 257).to(getattr(torch, dtype))
    y = getattr(F, name)(x)
    assert y.dtype == x.dtype
    wide = getattr(F, name)(x.double())
    eps = torch.finfo(x.dtype).eps
    assert ((y.double() - wide).abs() <= wide.abs() * eps * 0.51 + 1e-7).all()


def test_parameters():
    x = T([-2.0, -0.5, 0.5, 2.0])
    assert F.threshold(x, 0.1, 20).tolist() == [20.0, 20.0, 0.5, 2.0]
    assert F.hardshrink(x, 1.0).tolist() == [-2.0, 0.0, 0.0, 2.0]
    out = torch.empty(4)
    assert torch.hardshrink(x, 1.0, out=out) is out and out.tolist() == [-2.0, 0.0, 0.0, 2.0]
    assert F.softshrink(x, 1.0).tolist() == [-1.0, 0.0, 0.0, 1.0]
    assert F.leaky_relu(x, 0.5).tolist() == [-1.0, -0.25, 0.5, 2.0]
    assert F.prelu(x.view(1, 4), T([0.0, 1.0, 1.0, 1.0])).tolist() == [[-0.0, -0.5, 0.5, 2.0]]
    # Above the threshold softplus is the identity.
    assert F.softplus(T([3.0]), beta=2, threshold=5).tolist() == [3.0]
    np.testing.assert_allclose(F.elu(x, 2.0).tolist(), [2 * math.expm1(-2), 2 * math.expm1(-0.5), 0.5, 2.0], rtol=1e-6)
    np.testing.assert_allclose(
        F.celu(x, 2.0).tolist(), [2 * math.expm1(-1), 2 * math.expm1(-0.25), 0.5, 2.0], rtol=1e-6
    )
    tanh_form = 0.5 * 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (2 + 0.044715 * 8)))
    np.testing.assert_allclose(F.gelu(x, approximate="tanh")[3].item(), tanh_form, rtol=1e-6)
    np.testing.assert_allclose(F.glu(T([1.0, 2.0, 0.0, 1.0])).tolist(), [0.5, 2 / (1 + math.exp(-1))], rtol=1e-6)


def test_rrelu_draws_within_its_bounds():
    x = -torch.ones(1000)
    assert F.rrelu(x, 0.1, 0.3).tolist() == pytest.approx([-0.2] * 1000)
    drawn = F.rrelu(x, 0.1, 0.3, training=True)
    assert drawn.min() >= -0.3 and drawn.max() <= -0.1 and drawn.unique().numel() > 900
    assert (F.rrelu(torch.ones(9), training=True) == 1).all()


@pytest.mark.parametrize(
    "name", ["relu", "elu", "leaky_relu", "hardtanh", "relu6", "selu", "celu", "silu", "mish", "hardswish"]
)
def test_in_place(name):
    x = torch.linspace(-3, 3, 13)
    expected = getattr(F, name)(x)
    y = x.clone()
    assert getattr(F, name)(y, inplace=True) is y
    assert torch.equal(y, expected)
    leaf = x.clone().requires_grad_()
    getattr(F, name)(leaf * 1, inplace=True).sum().backward()
    other = x.clone().requires_grad_()
    getattr(F, name)(other).sum().backward()
    assert torch.allclose(leaf.grad, other.grad)


def test_gradients_at_the_kinks():
    kinks = {"relu": 0.0, "relu6": 0.0, "hardtanh": -1.0, "leaky_relu": 0.0, "elu": 0.0, "threshold": 0.0}
    slopes = {"relu": 0.0, "relu6": 0.0, "hardtanh": 0.0, "leaky_relu": 0.01, "elu": 1.0, "threshold": 0.0}
    for name, kink in kinks.items():
        x = T([kink], requires_grad=True)
        (F.threshold(x, 0.0, 5.0) if name == "threshold" else getattr(F, name)(x)).backward()
        assert x.grad.item() == pytest.approx(slopes[name]), name


@pytest.mark.parametrize(
    ("name", "node"),
    [("celu", "CeluBackward0"), ("glu", "GluBackward0"), ("elu", "EluBackward0"), ("gelu", "GeluBackward0"),
     ("relu", "ReluBackward0"), ("hardtanh", "HardtanhBackward0"), ("logsigmoid", "LogSigmoidBackward0")],
)  # fmt: skip
def test_one_node_each(name, node):
    x = torch.ones(2, 4, requires_grad=True)
    y = getattr(F, name)(x)
    assert type(y.grad_fn).__name__ == node
    assert [f.name() for f, _ in y.grad_fn.next_functions] == ["torch::autograd::AccumulateGrad"]


# ---- dropout


def test_dropout():
    x = torch.ones(4000)
    y = F.dropout(x, 0.25)
    kept = y != 0
    assert 0.70 < kept.float().mean() < 0.80
    np.testing.assert_allclose(y[kept].tolist(), 1 / 0.75, rtol=1e-6)
    assert F.dropout(x, 0.25, training=False) is not None and torch.equal(F.dropout(x, 0.25, training=False), x)
    assert torch.equal(F.dropout(x, 0.0), x) and not F.dropout(x, 1.0).any()
    torch.manual_seed(3)
    a = F.dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(F.dropout(x, 0.5), a)


def test_dropout_of_channels():
    x = torch.ones(40, 8, 3, 3)
    y = F.dropout2d(x, 0.5)
    per_channel = y.flatten(2)
    assert ((per_channel == 0).all(2) | (per_channel == 2).all(2)).all()
    assert 0 < (per_channel[..., 0] == 0).sum() < 320


IN_PLACE_DROPOUTS = [torch.dropout_, torch.alpha_dropout_, torch.feature_dropout_, torch.feature_alpha_dropout_]


@pytest.mark.parametrize("drop", IN_PLACE_DROPOUTS)
@pytest.mark.parametrize(("p", "train"), [(0.0, True), (0.5, False)])
def test_dropout_in_place_that_drops_nothing_changes_nothing(drop, p, train):
    leaf = torch.ones(2, 3, requires_grad=True)
    assert drop(leaf, p, train) is leaf and leaf.is_leaf and leaf._version == 0
    weights = leaf.softmax(1)  # keeps its result for the backward pass
    made_by = weights.grad_fn
    drop(weights, p, train).square().sum().backward()
    assert weights.grad_fn is made_by and weights._version == 0


@pytest.mark.parametrize("drop", IN_PLACE_DROPOUTS)
def test_dropout_in_place_draws_as_out_of_place(drop):
    plain = getattr(torch, drop.__name__[:-1])
    x, y = (torch.arange(1.0, 41.0).view(8, 5).requires_grad_() for _ in range(2))
    torch.manual_seed(5)
    expected = plain(x * 2, 0.4, True)
    torch.manual_seed(5)
    base = y * 2
    got = drop(base, 0.4, True)
    assert got is base and torch.equal(got, expected) and got.grad_fn.name() in ("MulBackward0", "AddBackward0")
    for z in (got, expected):
        z.sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert not drop(torch.ones(2, 3), 1.0, True).any()


def test_module_of_dropout_in_place_takes_a_leaf_in_evaluation():
    leaf = torch.ones(3, requires_grad=True)
    assert torch.nn.Dropout(0.5, inplace=True).eval()(leaf) is leaf


# ---- refusals


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: F.gelu(T([1.0]), approximate="fast"),
            RuntimeError,
            "approximate argument must be either none or tanh",
        ),
        (lambda: F.gelu(T([1])), NotImplementedError, "not implemented for 'Long'"),
        (lambda: F.silu(T([1])), NotImplementedError, "not implemented for 'Long'"),
        (lambda: F.elu(T([1])), NotImplementedError, "not implemented for 'Long'"),
        (
            lambda: F.softshrink(T([1.0]), -1.0),
            RuntimeError,
            r"lambda must be in range \[0, 3.40282e\+38\] for input dtype Float, but found -1",
        ),
        (lambda: F.glu(torch.ones(3)), RuntimeError, "Halving dimension must be even, but dimension 0 is size 3"),
        (lambda: F.glu(T(1.0)), RuntimeError, "glu does not support scalars because halving size must be even"),
        (lambda: torch.celu(T([1.0]), 0), RuntimeError, "ZeroDivisionError: alpha cannot be 0 for CELU"),
        (lambda: F.dropout(T([1.0]), 1.5), ValueError, "dropout probability has to be between 0 and 1, but got 1.5"),
        (
            lambda: F.prelu(torch.ones(2, 3), torch.ones(2)),
            RuntimeError,
            "Mismatch of parameter numbers and input channel",
        ),
        (lambda: torch.relu(T([True])), RuntimeError, "Boolean inputs not supported for relu"),
        (lambda: F.hardtanh(T([1.0]), 2.0, 1.0), ValueError, "min_val cannot be greater than max_val"),
    ],
)
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_gelu_gradient_in_every_range():
    # Several vectors are taken together where all are near zero; each element's result is the same beside others.
    x = torch.linspace(-9, 9, 1001)
    near = torch.linspace(-3.9, 4.9, 1003)
    for values in (x, near, torch.cat([near, x]), near[::2]):
        leaf = values.clone().requires_grad_()
        F.gelu(leaf).backward(torch.full_like(leaf, 2.0))
        wide = values.double().requires_grad_()
        F.gelu(wide).sum().backward()
        torch.testing.assert_close(leaf.grad, 2 * wide.grad.float(), rtol=1e-6, atol=4e-7)
    leaf = T([nan, inf, 1.0, -1.0] * 8).requires_grad_()
    F.gelu(leaf).sum().backward()
    assert leaf.grad.isnan().tolist()[:4] == [True, True, False, False]


def test_silu_far_from_zero_does_not_depend_on_its_neighbours():
    far = torch.tensor([-1e4, -104.0, -88.0, -87.0, -86.99, -40.0, 0.0, 86.99, 87.0, 89.0, 1e4, math.inf, math.nan])
    near = torch.full((64,), 0.5)
    alone = torch.cat([torch.nn.functional.silu(torch.stack([x] * 16))[:1] for x in far])
    for at in range(0, 48, 5):
        mixed = near.clone()
        mixed[at : at + len(far)] = far
        found = torch.nn.functional.silu(mixed)
        assert torch.equal(found[at : at + len(far)].nan_to_num(-7), alone.nan_to_num(-7))
        assert found[0 if at else 63] == torch.nn.functional.silu(near)[0]
    exact = far.double()
    assert torch.allclose(alone.double(), exact * torch.sigmoid(exact), rtol=3e-7, atol=1e-43, equal_nan=True)
