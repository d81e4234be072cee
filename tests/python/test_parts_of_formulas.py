"""Gradients of calls that make_fx records in parts: the graph of one example computes those of another."""

import mica as torch
import pytest
from mica.fx.experimental.proxy_tensor import make_fx

F = torch.nn.functional
aten = torch.ops.aten


def _numbers(*shape, seed=0, whole=False):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=g).float() if whole else torch.randn(shape, generator=g)


_INDEX = torch.tensor([[0, 1, 0], [0, 0, 2], [2, 1, 0]])
_ROWS = torch.tensor([0, 2, 0])
_LABELS = torch.tensor([[1, 2, -1, 0], [3, -1, 1, 1], [-1, 0, 0, 0]])


def _scattered(reduce, include_self):
    return lambda x, src: x.scatter_reduce(0, _INDEX, src, reduce, include_self=include_self)


def _indexed(reduce, include_self):
    return lambda x, src: x.index_reduce(0, _ROWS, src, reduce, include_self=include_self)


# name: (function, shapes of its arguments, whether to take small whole numbers, of which many are equal or zero)
CASES = {
    "addr": (lambda a, b, c: torch.addr(a, b, c, beta=2, alpha=3), [(2, 3), (2,), (3,)], False),
    "addbmm": (lambda a, b, c: torch.addbmm(a, b, c, beta=0.5), [(2, 3), (4, 2, 5), (4, 5, 3)], False),
    "cross": (lambda a, b: torch.cross(a, b, dim=0), [(3, 2), (3, 2)], False),
    "linalg.cross": (torch.linalg.cross, [(4, 3), (1, 3)], False),
    "combinations": (lambda a: torch.combinations(a, 3).prod(1), [(5,)], False),
    "mvlgamma": (lambda a: torch.mvlgamma(a.abs() + 3, 3), [(2, 3)], False),
    "cdist": (torch.cdist, [(4, 3), (5, 3)], False),
    "cdist of a batch": (lambda a, b: torch.cdist(a, b, p=1.5), [(2, 4, 3), (5, 3)], False),
    "cdist of one point": (lambda a, b: torch.cdist(a, b), [(1, 1), (1, 1)], False),
    "pdist": (F.pdist, [(4, 3)], False),
    "affine_grid": (lambda a: F.affine_grid(a, (2, 1, 3, 4), align_corners=False), [(2, 2, 3)], False),
    "affine_grid of volumes": (lambda a: F.affine_grid(a, (1, 1, 2, 3, 4), align_corners=True), [(1, 3, 4)], False),
    "multilabel": (lambda x: F.multilabel_margin_loss(x, _LABELS), [(3, 4)], False),
    "multilabel of one": (lambda x: F.multilabel_margin_loss(x, _LABELS[0], reduction="sum"), [(4,)], False),
    "quantile": (lambda x: x.quantile(0.3), [(3, 4)], False),
    "quantile of rows": (lambda x: x.quantile(torch.tensor([0.1, 0.8]), dim=1, keepdim=True), [(3, 4)], False),
    "nanquantile": (lambda x: x.nanquantile(0.4, dim=0), [(3, 4)], False),
    **{
        f"quantile {way}": (lambda x, w=way: x.quantile(0.3, dim=1, interpolation=w), [(3, 4)], False)
        for way in ("lower", "higher", "midpoint", "nearest")
    },
    **{
        f"{kind.__name__[1:]} {reduce} {own}": (kind(reduce, own), [(3, 3), (3, 3)], True)
        for kind in (_scattered, _indexed)
        for reduce in ("prod", "amax", "amin")
        for own in (True, False)
    },
    **{
        f"{reduce} of one number": (
            lambda x, s, r=reduce: x.scatter_reduce(0, torch.tensor(0), s, r).index_reduce(
                0, torch.tensor([0]), s * 3, r
            ),
            [(), ()],
            False,
        )
        for reduce in ("prod", "amax", "amin")
    },
    "a part of the source": (lambda x, s: x.scatter_reduce(0, _INDEX[:2, :2], s, "amax"), [(3, 3), (3, 3)], False),
    "dropout": (lambda x: F.dropout(x, 0.5), [(4, 5)], False),
    "dropout2d": (lambda x: F.dropout2d(x, 0.5), [(2, 3, 2, 2)], False),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.5, True), [(4, 5)], False),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.3),
        [(2, 3, 4), (2, 3, 4), (2, 3, 4)],
        False,
    ),
    "embedding_bag": (lambda w: F.embedding_bag(torch.tensor([[0, 1], [2, 0]]), w), [(3, 2)], False),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_parts_are_the_engines(name):
    function, shapes, whole = CASES[name]

    def gradients(*args):
        leaves = [each.detach().requires_grad_() for each in args]
        out = function(*leaves)
        weight = torch.arange(1.0, out.numel() + 1).view(out.shape)
        return out, *torch.autograd.grad((out * weight).sum(), leaves)

    first = [_numbers(*shape, seed=i, whole=whole) for i, shape in enumerate(shapes)]
    other = [_numbers(*shape, seed=i + 7, whole=whole) for i, shape in enumerate(shapes)]
    graph = make_fx(gradients)(*first)
    torch.manual_seed(5)
    made = graph(*other)
    torch.manual_seed(5)
    torch.testing.assert_close(made, gradients(*other), rtol=1e-5, atol=1e-5)
