"""vmap with gradients: of each example, through vmap and within it."""

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.func import functional_call, grad, jacrev, vmap


def one_by_one(f, *args):
    return mica.stack([f(*(a[i] for a in args)) for i in range(args[0].shape[0])])


MODELS = {
    "linear": lambda: (nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "rows": lambda: (nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3, bias=False)), (4, 6)),
    "conv": lambda: (
        nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 2)),
        (2, 6, 6),
    ),
    "groups": lambda: (nn.Sequential(nn.Conv1d(4, 4, 3, groups=2), nn.GroupNorm(2, 4), nn.AvgPool1d(2)), (1, 4, 9)),
    "transposed": lambda: (nn.Sequential(nn.ConvTranspose1d(3, 2, 3, stride=2), nn.GELU()), (3, 5)),
    "attention": lambda: (nn.MultiheadAttention(4, 2, batch_first=True), (1, 3, 4)),
    "transformer": lambda: (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_per_sample_gradients(name):
    model, shape = MODELS[name]()
    model = model.double().train()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    x = mica.randn(5, *shape, dtype=mica.float64)

    def loss(p, x):
        args = (x, x, x) if name == "attention" else (x,)
        out = functional_call(model, p, args)
        out = out[0] if name == "attention" else out
        return (out * mica.arange(out.numel(), dtype=out.dtype).view(out.shape)).sin().sum()

    at_once = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(5):
        expected = grad(loss)(parameters, x[i])
        for key, value in expected.items():
            mica.testing.assert_close(at_once[key][i], value, rtol=1e-9, atol=1e-10)


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses(reduction):
    x, y = mica.randn(4, 5, 3), mica.randint(3, (4, 5))
    y[0, 1] = 2
    w = mica.rand(3) + 0.5
    soft = mica.softmax(mica.randn(4, 5, 3), -1)
    for f in (
        lambda x, y, s: F.cross_entropy(x, y, reduction=reduction),
        lambda x, y, s: F.cross_entropy(x, y, weight=w, ignore_index=2, reduction=reduction),
        lambda x, y, s: F.cross_entropy(x, y, label_smoothing=0.1, reduction=reduction),
        lambda x, y, s: F.cross_entropy(x, s, reduction=reduction),
        lambda x, y, s: F.cross_entropy(x[0], y[0], reduction=reduction),
        lambda x, y, s: F.nll_loss(x.log_softmax(-1), y, w, reduction=reduction),
        lambda x, y, s: F.mse_loss(x, s, reduction=reduction),
        lambda x, y, s: F.binary_cross_entropy_with_logits(x, s, weight=w, reduction=reduction),
        lambda x, y, s: F.smooth_l1_loss(x, s, reduction=reduction, beta=0.5),
        lambda x, y, s: F.kl_div(x.log_softmax(-1), s, reduction=reduction),
    ):
        mica.testing.assert_close(vmap(f)(x, y, soft), one_by_one(f, x, y, soft))


def test_batch_norm_needs_statistics_of_its_own():
    model = nn.BatchNorm1d(3)
    x = mica.randn(4, 5, 3)
    with pytest.raises(RuntimeError, match="Batch norm got a batched tensor as input while the running_mean"):
        vmap(model)(x)
    alone = nn.BatchNorm1d(3, track_running_stats=False)
    mica.testing.assert_close(vmap(alone)(x), one_by_one(alone, x))
    model.eval()
    mica.testing.assert_close(vmap(model)(x), one_by_one(model, x))


def test_gradients_through_and_within():
    x, w = mica.randn(4, 3, requires_grad=True), mica.randn(3, requires_grad=True)
    vmap(lambda v: (v * w).sin().sum())(x).sum().backward()
    mica.testing.assert_close(x.grad, (x * w).cos().detach() * w.detach())
    mica.testing.assert_close(w.grad, ((x * w).cos() * x).sum(0).detach())

    def inner(v):
        return mica.autograd.grad((v**3).sum(), v)[0]

    mica.testing.assert_close(vmap(inner)(x), 3 * x**2)
    outer = grad(lambda v: vmap(grad(lambda u: (u**3).sum()))(v).sum())(x.detach())
    mica.testing.assert_close(outer, 6 * x.detach())


def test_second_derivatives_of_shared_weights():
    w, x = mica.randn(3, 4, dtype=mica.float64), mica.randn(5, 4, dtype=mica.float64)
    f = lambda w, x: F.linear(x, w).tanh().pow(2).sum()  # noqa: E731
    at_once = vmap(jacrev(grad(f)), in_dims=(None, 0))(w, x)
    for i in range(5):
        mica.testing.assert_close(at_once[i], jacrev(grad(f))(w, x[i]))


@pytest.mark.parametrize("rows", [(), (3,)])
def test_gradients_of_each_example_under_autocast(rows):
    weight, x = mica.randn(4, 5), mica.randn(6, *rows, 5)

    def loss(weight, x):
        with mica.autocast("cpu"):
            y = mica.nn.functional.linear(x, weight)
        assert y.dtype == mica.bfloat16
        return y.float().pow(2).sum()

    for arguments in (0, 1):
        gradient = mica.func.grad(loss, argnums=arguments)
        together = mica.vmap(gradient, in_dims=(None, 0))(weight, x)
        one_by_one = mica.stack([gradient(weight, each) for each in x])
        assert together.dtype == mica.float32
        assert mica.allclose(together, one_by_one, rtol=0.02, atol=0.02 * float(one_by_one.abs().max()))
