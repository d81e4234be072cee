"""The loss that makes its logits itself: what a linear layer and cross_entropy give, in parts or at once."""

import copy

import mica
import mica.nn.functional as F
import pytest
from mica import nn

OPTIONS = [None, *(nn.LinearCrossEntropyOptions(batch_chunk_size=n) for n in (1, 3, 100))]
OPTIONS += [nn.LinearCrossEntropyOptions(), nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:4")]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(options, reduction, weighted):
    loss = nn.LinearCrossEntropyLoss(
        4, 9, bias=True, dtype=mica.float64, reduction=reduction, ignore_index=2, options=options,
        weight=mica.rand(9, dtype=mica.float64) if weighted else None,
    )  # fmt: skip
    twin = copy.deepcopy(loss)
    x = mica.randn(7, 4, dtype=mica.float64, requires_grad=True)
    y, target = x.detach().requires_grad_(), mica.tensor([0, 2, 8, 1, 2, 3, 3])
    ours = loss(x, target)
    theirs = F.cross_entropy(twin.linear(y), target, twin.weight, reduction=reduction, ignore_index=2)
    mica.testing.assert_close(ours, theirs)
    for _ in range(2):  # the graph can be kept
        ours.sum().backward(retain_graph=True)
    (2 * theirs).sum().backward()
    for a, b in zip((x, *loss.parameters()), (y, *twin.parameters()), strict=True):
        mica.testing.assert_close(a.grad, b.grad)


def test_one_row_further_dimensions_and_probabilities():
    weight, x = mica.randn(5, 4), mica.randn(4)
    for options in OPTIONS:
        one = F.linear_cross_entropy(x, weight, mica.tensor(3), options=options)
        mica.testing.assert_close(one, F.cross_entropy(weight @ x, mica.tensor(3)))
    loss = nn.LinearCrossEntropyLoss(4, 5, out_features=(2, 3))
    assert loss.linear.weight.shape == (30, 4)
    x = mica.randn(6, 4)
    logits = loss.linear(x).view(6, 5, 2, 3)
    for target in (mica.randint(5, (6, 2, 3)), mica.rand(6, 5, 2, 3)):
        mica.testing.assert_close(loss(x, target), F.cross_entropy(logits, target))


def test_short_floats_are_summed_in_float32():
    x, weight, target = mica.randn(64, 8).bfloat16(), mica.randn(30, 8).bfloat16(), mica.randint(30, (64,))
    exact = F.linear_cross_entropy(x.double(), weight.double(), target)
    ours = F.linear_cross_entropy(x, weight, target, options=nn.LinearCrossEntropyOptions())
    assert ours.dtype == mica.bfloat16
    assert ours == exact.bfloat16()


def test_what_cannot_be_cut_is_not():
    x, weight, target = mica.randn(3, 4), mica.randn(5, 4), mica.tensor([0, 1, 2])
    with pytest.warns(UserWarning, match="``options`` ignored"):
        cut = F.linear_cross_entropy(x, weight, target, label_smoothing=0.1, options=nn.LinearCrossEntropyOptions())
    mica.testing.assert_close(cut, F.linear_cross_entropy(x, weight, target, label_smoothing=0.1))


REFUSED = [
    (RuntimeError, "expected input with dimensionality 1 or 2, got 3", lambda x, w, t: (x[None], w, t)),
    (RuntimeError, "expected linear_weight with dimensionality at least 2, got 1", lambda x, w, t: (x, w[0], t)),
    (RuntimeError, r"\(in_features\), got 3 and 4, respectively", lambda x, w, t: (x[:, :3], w, t)),
    (RuntimeError, "requires batched input", lambda x, w, t: (x[0], w[:, None], t[0])),
]


@pytest.mark.parametrize("kind,words,change", REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(kind, words, change):
    with pytest.raises(kind, match=words):
        F.linear_cross_entropy(*change(mica.randn(3, 4), mica.randn(5, 4), mica.tensor([0, 1, 2])))


@pytest.mark.parametrize(
    "keywords,words",
    [
        ({"acc_policy": "best"}, "invalid acc_policy: 'best'"),
        ({"chunking_method": "aspect_ratio:0"}, "invalid chunking_method"),
        ({"batch_chunk_size": 0}, "batch_chunk_size must be positive int or None, got 0"),
        ({"acc_dtype": mica.int64}, "acc_dtype must be one of"),
    ],
)
def test_wrong_options(keywords, words):
    with pytest.raises(ValueError, match=words):
        nn.LinearCrossEntropyOptions(**keywords)


def test_representation():
    assert repr(nn.LinearCrossEntropyLoss(3, 4, bias=True)) == (
        "LinearCrossEntropyLoss(\n"
        "  in_features=3, num_classes=4, out_features=(), bias=True, reduction=mean, ignore_index=None, "
        "label_smoothing=0.0, options=None\n"
        "  (linear): Linear(in_features=3, out_features=4, bias=True)\n"
        ")"
    )
