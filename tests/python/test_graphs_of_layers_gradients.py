"""make_fx shows gradients of decompositions, pools and losses that the engine computes in one piece."""

import mica as torch
import pytest
from mica._functorch.aot_autograd import aot_function
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F

LABELS = torch.tensor([[1, 2], [2, 0]])


def loss(reduction):
    return lambda x: F.ctc_loss(
        x.log_softmax(2), LABELS, [4, 3], [2, 1], reduction=reduction, zero_infinity=reduction == "none"
    )


CASES = {
    "lu": (torch.linalg.lu, (3, 3)),
    "lu of high ones": (torch.linalg.lu, (4, 3)),
    "lu of wide ones": (torch.linalg.lu, (2, 3, 4)),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, 2, 2, _random_samples=torch.full((1, 1, 2), 0.5)), (1, 1, 5, 5)),
    "fractional_max_pool3d": (
        lambda x: F.fractional_max_pool3d(x, 2, output_ratio=0.5, _random_samples=torch.full((1, 1, 3), 0.5), return_indices=True)[0],
        (1, 1, 5, 5, 5),
    ),
    **{f"ctc_loss {reduction}": (loss(reduction), (4, 2, 5)) for reduction in ("none", "sum", "mean")},
    "ctc_loss of lengths in tensors": (
        lambda x: F.ctc_loss(x.log_softmax(2), LABELS, torch.tensor([4, 3]), torch.tensor([2, 1])), (4, 2, 5)
    ),
    "vander": (torch.vander, (4,)),
    "linalg.vander": (lambda x: torch.linalg.vander(x, N=3), (2, 4)),
    "quantile of a number": (lambda x: torch.quantile(x, 0.4), ()),
    "vander of few powers": (lambda x: torch.vander(x, 3, True), (4,)),
    "householder_product": (lambda x: torch.linalg.householder_product(x, x[..., 0, :2] + 1), (2, 4, 3)),
    "orgqr": (lambda x: torch.orgqr(x, x[0] + 1), (3, 3)),
    "lstsq": (lambda x: torch.linalg.lstsq(x.double(), x.double()[:, 1:].cos()).solution, (5, 3)),
    "lstsq of many unknowns": (lambda x: torch.linalg.lstsq(x.double(), x.double()[..., :2].exp()).solution, (2, 3, 6)),
}  # fmt: skip


@pytest.mark.parametrize("function, sizes", CASES.values(), ids=CASES)
def test_gradients_are_shown(function, sizes):
    def gradient(x):
        x = x.detach().requires_grad_()
        made = function(x)
        made = sum((each * each).sum() for each in made) if isinstance(made, tuple) else (made * made).sum()
        return torch.autograd.grad(made, x)[0]

    graph = make_fx(gradient)(torch.randn(sizes))
    x = torch.randn(sizes)
    assert torch.allclose(graph(x), gradient(x), atol=1e-4, rtol=1e-3)


DRAWS = {
    "rrelu": (lambda x: F.rrelu(x, training=True), (5, 6)),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, 2, 3), (2, 3, 7, 7)),
    "fractional_max_pool3d": (lambda x: F.fractional_max_pool3d(x, 2, output_ratio=0.5), (3, 9, 9, 9)),
}


@pytest.mark.parametrize("function, sizes", DRAWS.values(), ids=DRAWS)
def test_gradients_of_draws(function, sizes):
    def gradient(x):
        made = function(x)
        return torch.autograd.grad((made * made).sum(), x)[0]

    graph = make_fx(gradient)(torch.randn(sizes, requires_grad=True))
    x = torch.randn(sizes, requires_grad=True)
    torch.manual_seed(3)
    found = graph(x)
    torch.manual_seed(3)
    assert found.allclose(gradient(x)) and not torch.equal(found, graph(x))


def test_lengths_in_tensors_are_inputs_of_the_graph():
    def gradient(x, lengths):
        return torch.autograd.grad(F.ctc_loss(x.log_softmax(2), LABELS, lengths, torch.tensor([2, 1])), x)[0]

    x = torch.randn(4, 2, 5, requires_grad=True)
    graph = make_fx(gradient)(x, torch.tensor([4, 4]))
    for lengths in ([4, 4], [3, 4], [2, 2]):
        lengths = torch.tensor(lengths)
        assert graph(x, lengths).allclose(gradient(x, lengths))


def test_rows_that_an_embedding_shortens():
    def lookup(x):
        return F.embedding(torch.tensor([0, 2]), x * 1, max_norm=0.5).sum()

    def gradient(x):
        return torch.autograd.grad(lookup(x), x)[0]

    x = torch.randn(3, 4, requires_grad=True)
    compiled = aot_function(lookup, lambda graph, inputs: graph)
    assert torch.autograd.grad(compiled(x), x)[0].allclose(gradient(x))


@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("given", ["rows", "offsets", "weights"])
def test_gradients_of_bags(mode, given, tracing_mode):
    if given == "weights" and mode != "sum":
        pytest.skip("weights are of sums")

    def gradients(weight, indices, offsets, factors):
        if given == "rows":
            made = F.embedding_bag(indices.view(2, -1), weight, mode=mode, padding_idx=1)
        else:
            factors = factors if given == "weights" else None
            made = F.embedding_bag(indices, weight, offsets, mode=mode, per_sample_weights=factors)
        return torch.autograd.grad(
            made.square().sum(), (weight, factors) if factors is not None and given == "weights" else weight
        )

    weight, factors = torch.randn(6, 3, requires_grad=True), torch.randn(6, requires_grad=True)
    graph = make_fx(gradients, tracing_mode=tracing_mode)(
        weight, torch.tensor([0, 2, 1, 1, 5, 4]), torch.tensor([0, 3]), factors
    )
    other = (weight, torch.tensor([3, 3, 1, 0, 2, 5]), torch.tensor([0, 5]), factors)
    for ours, theirs in zip(graph(*other), gradients(*other), strict=True):
        assert ours.allclose(theirs, atol=1e-6)
