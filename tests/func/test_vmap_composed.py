"""vmap by rules that are made of other operations: as one example after the other, and without calling them so."""

import mica as torch
import pytest
from mica.autograd import Function
from mica.func import vmap
from mica.func._batched import _set_vmap_fallback_enabled

X = torch.arange(12.0).reshape(2, 2, 3)
Y = (torch.arange(12.0) * 5 % 7).reshape(2, 2, 3)
ROW = torch.tensor([[0, 1, 0], [1, 1, 0]])
ONE = torch.tensor([3.0, 4.0])

CASES = {
    "dist": lambda: (lambda x, y: torch.dist(x, y, 3), X, Y),
    "diff": lambda: (lambda x, y: torch.diff(x, 2, 1, prepend=y), X, Y),
    "diff of order 0": lambda: (lambda x, y: torch.diff(x, 0, 1, prepend=y), X, Y),
    "cov": lambda: (torch.cov, X),
    "corrcoef": lambda: (torch.corrcoef, Y),
    "inner": lambda: (torch.inner, X, Y),
    "matrix_norm": lambda: (lambda x: torch.linalg.matrix_norm(x, 1, (1, 0), True), X),
    "norm": lambda: (lambda x: torch.linalg.norm(x, "nuc"), X),
    "norm of all": lambda: (torch.linalg.norm, X),
    "aminmax": lambda: (lambda x: torch.aminmax(x, dim=0), X),
    "atleast_3d": lambda: (torch.atleast_3d, X[:, 0]),
    "meshgrid": lambda: (lambda x, y: torch.meshgrid(x, y, indexing="xy"), X[:, 0], Y[:, 1, :2]),
    "cartesian_prod": lambda: (torch.cartesian_prod, X[:, 0], Y[:, 1, :2]),
    "combinations": lambda: (lambda x: torch.combinations(x, 2, True), X[:, 0]),
    "block_diag": lambda: (torch.block_diag, X, Y[:, 0]),
    "hstack": lambda: (lambda x, y: torch.hstack([x, y]), X, Y),
    "roll": lambda: (lambda x: torch.roll(x, 2), X),
    "repeat_interleave": lambda: (lambda x: torch.repeat_interleave(x, 2), X),
    "trapezoid": lambda: (torch.trapezoid, X, Y),
    "cumulative_trapezoid": lambda: (lambda x: torch.cumulative_trapezoid(x, dx=0.5, dim=0), X),
    "unfold": lambda: (lambda x: x.unfold(1, 2, 1), X),
    "unravel_index": lambda: (lambda x: torch.unravel_index(x, (2, 2)), ROW),
    "sum_to_size": lambda: (lambda x: x.sum_to_size(1, 3), X),
    "take_along_dim": lambda: (lambda x, i: torch.take_along_dim(x, i.unsqueeze(0), 0), X, ROW),
    "scatter of a number": lambda: (lambda x, y: torch.scatter_add(x, 0, torch.tensor(0), y), ONE, ONE),
    "gather of a number": lambda: (lambda x: torch.gather(x, 0, torch.tensor(0)), ONE),
    "index_add": lambda: (lambda x, i, y: torch.index_add(x, 1, i, y, alpha=2), X, ROW, Y),
    "index_copy": lambda: (lambda x, i, y: torch.index_copy(x, 1, i, y), X, torch.tensor([[2, 0, 1], [1, 2, 0]]), Y),
    "index_fill": lambda: (lambda x, i, v: torch.index_fill(x, 1, i, v), X, ROW, ONE),
    "indices": lambda: (lambda x, i: x[i % 2, i], X, ROW),
    "indices apart": lambda: (lambda x, i: x.unsqueeze(1)[i % 2, :, i], X, ROW),
    "indices behind": lambda: (lambda x, i: x[:, i], X, ROW),
    "index_put": lambda: (lambda x, i, y: x.index_put((i % 2, i), y[0], accumulate=True), X, ROW, Y),
    "index_put behind": lambda: (lambda x, i, y: x.index_put((None, i), y, accumulate=True), X, ROW, Y),
    "bucketize": lambda: (torch.bucketize, Y, X[:, 0]),
    "prelu": lambda: (torch.prelu, X - 5, ONE),
    "solve": lambda: (torch.linalg.solve, X[:, :, :2] + 3 * torch.eye(2), Y[:, :, 0]),
}


@pytest.mark.parametrize("name", CASES)
def test_as_one_after_the_other(name):
    function, *tensors = CASES[name]()
    _set_vmap_fallback_enabled(False)
    try:
        found = vmap(function)(*tensors)
    finally:
        _set_vmap_fallback_enabled(True)
    for i in range(len(tensors[0])):
        expected = function(*(x[i] for x in tensors))
        for got, wanted in zip(
            found if isinstance(found, (tuple, list)) else (found,),
            expected if isinstance(expected, (tuple, list)) else (expected,),
            strict=True,
        ):
            torch.testing.assert_close(got[i], wanted)


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda x: x.unsqueeze(0).t(), "expects a tensor with <= 2 dimensions"),
        (lambda x: torch.trace(x[0]), "expected a matrix"),
        (lambda x: torch.diag(x.unsqueeze(0)), "Supports 1D or 2D tensors"),
        (lambda x: torch.dot(x, x), "1D tensors expected"),
        (lambda x: torch.diff(x, prepend=x[0]), "to be the same dimension as input"),
    ],
)
def test_what_an_example_is_refused_for(function, words):
    with pytest.raises(RuntimeError, match=words):
        vmap(function)(X)


def test_generated_rules_of_functions():
    class Power(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, weight, order=2):
            assert x.dim() == 1
            return x**order * weight, x.detach() + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, weight, ctx.order = inputs
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(x, weight)

        @staticmethod
        def backward(ctx, grad, _):
            x, weight = ctx.saved_tensors
            assert x.dim() == grad.dim() == 1
            return grad * weight * ctx.order * x ** (ctx.order - 1), (grad * x**ctx.order).sum(), None

    x = X[:, 0].clone().requires_grad_()
    weight = torch.tensor(3.0, requires_grad=True)
    _set_vmap_fallback_enabled(False)
    try:
        found, other = vmap(Power.apply, in_dims=(0, None))(x, weight)
    finally:
        _set_vmap_fallback_enabled(True)
    assert not other.requires_grad
    torch.testing.assert_close(found, x**2 * 3)
    found.sum().backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())
    torch.testing.assert_close(weight.grad, (x.detach() ** 2).sum())


def test_registered_rules_of_operators():
    @torch.library.custom_op("tests::doubled_rows", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    seen = []

    @doubled.register_vmap
    def rule(info, in_dims, x):
        seen.append((info.batch_size, in_dims))
        return doubled(x), in_dims[0]

    torch.testing.assert_close(vmap(doubled)(X), X * 2)
    assert seen == [(2, (0,))]


@pytest.mark.parametrize("method", ["requires_grad_", "retain_grad"])
def test_what_transforms_refuse(method):
    def function(x):
        y = x.sin()
        getattr(y, method)()
        return y.sum()

    with pytest.raises(RuntimeError, match=f"attempting to call Tensor.{method}"):
        torch.func.grad(function)(torch.ones(3))
