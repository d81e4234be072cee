"""Losses beside torch's, live: values and gradients in every dtype, layouts, large inputs, and the words of errors."""

import warnings

import mica
import numpy as np
import pytest
from layer_cases import LOSSES, OTHERS, run

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from both_libraries import errors_begin_alike, evaluated  # noqa: E402

TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "bfloat16": 4e-2, "float16": 5e-3}


def assert_close(ours, theirs, tolerance):
    assert (ours is None) == (theirs is None)
    if ours is None:
        return
    assert ours[0] == theirs[0]
    x, y = np.array(ours[1]), np.array(theirs[1])
    scale = np.abs(y[np.isfinite(y)]).max(initial=1.0)
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("constructor,inputs", [*LOSSES, *OTHERS])
def test_same_as_torch(constructor, inputs, dtype):
    try:
        theirs = run(torch, constructor, inputs, dtype)
    except (RuntimeError, NotImplementedError):
        return  # torch has no such kernel; Mica may
    ours = run(mica, constructor, inputs, dtype)
    for kind in ("outputs", "gradients"):
        for a, b in zip(ours[kind], theirs[kind], strict=True):
            assert_close(a, b, TOLERANCE[dtype])


def both(torch, array):
    return mica.from_numpy(array.copy()), torch.from_numpy(array.copy())


@pytest.mark.parametrize("shape", [(300, 1000), (7, 50000), (4, 19, 33, 31), (64, 10), (2, 5, 4, 3, 2), (3, 2, 2000)])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"reduction": "none"}, {"ignore_index": 1}])
def test_cross_entropy_of_many_shapes(shape, layout, options):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(shape, dtype=np.float32) * 5
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    gradients = []
    for library in (mica, torch):
        x, y = library.from_numpy(logits.copy()), library.from_numpy(labels.copy())
        if library is torch:
            x = x.double()  # torch's float32 is less exact than ours
        if layout == "channels_last" and len(shape) == 4:
            x = x.contiguous(memory_format=library.channels_last)
        elif layout == "strided":
            x = x.movedim(0, -1).contiguous().movedim(-1, 0)
        x.requires_grad_()
        loss = library.nn.functional.cross_entropy(x, y, **options)
        (loss * 1.5).sum().backward()
        gradients.append((loss.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6 * max(1, np.abs(theirs).max()))


ERRORS = [
    "F.binary_cross_entropy(r(3), r(3).double())",
    "F.binary_cross_entropy(r(3) * 2 + 1.5, r(3))",
    "F.binary_cross_entropy(r(3), r(3) + 5)",
    "F.binary_cross_entropy(r(3), r(4))",
    "F.binary_cross_entropy_with_logits(r(3), r(4))",
    "F.mse_loss(torch.tensor([1, 0]), torch.tensor([1, 0]))",
    "F.mse_loss(r(3), r(3), reduction='foo')",
    "F.mse_loss(r(3), r(4))",
    "F.smooth_l1_loss(r(3), r(3), beta=-1.0)",
    "F.huber_loss(r(3), r(3), delta=-1.0)",
    "F.nll_loss(r(3, 4), torch.tensor([1, 0, 1], dtype=torch.int32))",
    "F.nll_loss(r(3, 4), torch.tensor([1, 0, 4]))",
    "F.nll_loss(r(3, 4), torch.tensor([1, 0]))",
    "F.nll_loss(r(3, 4, 2), torch.tensor([[1, 0], [1, 0]]))",
    "F.nll_loss(r(3, 4, 2, 2), torch.zeros(3, 2, 3).long())",
    "F.nll_loss(r(3, 4, 2, 2), torch.zeros(3, 2, 2).long() + 7)",
    "F.nll_loss(r(3, 4), torch.zeros(3, 2).long())",
    "F.nll_loss(r(()), torch.tensor(2))",
    "F.nll_loss(r(3, 4), torch.tensor([1, 0, 1]), weight=r(3))",
    "F.nll_loss(r(3, 4), torch.tensor([1, 0, 1]), weight=r(4).double())",
    "F.nll_loss(r(3, 4).long(), torch.tensor([1, 0, 1]))",
    "F.cross_entropy(r(3, 4), torch.tensor([1, 0, 9]))",
    "F.cross_entropy(r(3, 4), torch.tensor([1, 0, -1]))",
    "F.cross_entropy(r(3, 4), torch.tensor([1, 0]))",
    "F.cross_entropy(r(3, 4), r(3, 5))",
    "F.cross_entropy(r(3, 4), torch.zeros(3, 4).long())",
    "F.cross_entropy(r(3, 4), torch.tensor([1, 0, 1]), weight=r(3))",
    "F.cross_entropy(r(3, 4), torch.tensor([1, 0, 1]), label_smoothing=1.5)",
    "F.cross_entropy(r(3, 4).bfloat16(), torch.tensor([1, 0, 1]), weight=r(4))",
    "F.cross_entropy(r(3, 4), r(3, 4), ignore_index=1)",
    "F.cross_entropy(r(4, 0), torch.zeros(4).long())",
    "F.kl_div(torch.tensor([1, 0, 1]), r(3))",
    "F.cosine_embedding_loss(r(3, 4), r(3, 4), torch.ones(3, 2))",
    "F.cosine_embedding_loss(r(4), r(4), torch.ones(1))",
    "F.cosine_embedding_loss(r(3, 4), r(3, 4), torch.ones(()))",
    "F.margin_ranking_loss(r(3), r(3), r(3, 1))",
    "F.triplet_margin_loss(r(3, 4), r(3, 4), r(4))",
    "F.triplet_margin_loss(r(3, 4), r(3, 4), r(3, 4), margin=0)",
    "F.triplet_margin_with_distance_loss(r(3, 4), r(3, 4), r(3))",
    "F.triplet_margin_with_distance_loss(r(3, 4), r(3, 4), r(3, 4), reduction='no')",
    "F.multi_margin_loss(r(3, 4), torch.tensor([1, 2, 4]))",
    "F.multi_margin_loss(r(3, 4), torch.tensor([1, 2]))",
    "F.multi_margin_loss(r(3, 4), torch.tensor([1, 2, 3]), weight=r(3))",
    "F.multi_margin_loss(r(3, 4), torch.tensor([1, 2, 3]), p=3)",
    "F.multi_margin_loss(r(3, 4, 2), torch.tensor([1, 2, 3]))",
    "F.multilabel_margin_loss(r(3, 4), torch.tensor([1, 2, 4]))",
    "F.multilabel_margin_loss(r(3, 4), torch.full((3, 4), 5))",
    "F.gaussian_nll_loss(r(3), r(3), -r(3) - 0.1)",
    "F.gaussian_nll_loss(r(3, 4), r(3, 4), r(2, 4))",
    "F.gaussian_nll_loss(r(3), r(3), r(3), reduction='no')",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), (6,), (3, 3))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), (6, 6), (3,))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), (6, 7), (3, 3))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), (6, -1), (3, 3))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), (6, 6), (3, 4))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(6).long(), (6, 6), (3, 1))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), (6, 6), (3, 3), blank=4)",
    "F.ctc_loss(r(6, 2, 4).half(), torch.ones(2, 3).long(), (6, 6), (3, 3))",
    "F.ctc_loss(r(6, 2, 4), torch.ones(2, 3).long(), torch.tensor([6.0, 6]), torch.tensor([3, 3]))",
    "F.embedding_bag(torch.tensor([1, 7]), r(5, 3), torch.tensor([0]))",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3), torch.tensor([1]))",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3), torch.tensor([0, 9]))",
    "F.embedding_bag(torch.tensor([1.0, 2]), r(5, 3), torch.tensor([0]))",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3), torch.tensor([0]), per_sample_weights=r(2))",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3), torch.tensor([0]), per_sample_weights=r(3), mode='sum')",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3), torch.tensor([0]), padding_idx=7)",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3), torch.tensor([0]), mode='foo')",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3))",
    "F.embedding_bag(torch.tensor([[1, 2]]), r(5, 3), torch.tensor([0]))",
    "F.embedding_bag(torch.tensor([[[1, 2]]]), r(5, 3))",
    "F.embedding_bag(torch.tensor([1, 2]), r(5, 3).long(), torch.tensor([0]))",
    "F.cosine_similarity(r(3, 4), r(3, 5))",
    "F.cosine_similarity(r(3, 4).long(), r(3, 4).long())",
    "F.cosine_similarity(r(3), r(3))",
    "F.pairwise_distance(r(3, 4), r(3, 5))",
    "F.pdist(r(3))",
    "F.pdist(r(3, 2).long())",
    "F.pdist(r(3, 2), -1.0)",
    "nn.HuberLoss(delta='1')",
    "nn.MultiMarginLoss(p=3)",
    "nn.TripletMarginLoss(margin=0.0)",
    "nn.TripletMarginWithDistanceLoss(margin=0.0)",
    "nn.AdaptiveLogSoftmaxWithLoss(4, 8, [5, 2])",
    "nn.AdaptiveLogSoftmaxWithLoss(4, 8, [])",
    "nn.AdaptiveLogSoftmaxWithLoss(4, 8, [2, 5])(r(2, 4), torch.tensor([1, 9]))",
    "nn.AdaptiveLogSoftmaxWithLoss(4, 8, [2, 5])(r(2, 4), torch.tensor([1]))",
]


@pytest.mark.parametrize("expression", ERRORS)
def test_errors_begin_with_torchs_words(expression):
    errors_begin_alike(expression, 4)


WARNINGS = [
    "F.mse_loss(r(3, 1), r(3))",
    "F.l1_loss(r(3, 1), r(3))",
    "F.smooth_l1_loss(r(3, 1), r(3))",
    "F.huber_loss(r(3, 1), r(3))",
    "F.kl_div(r(3), r(3))",
    "F.mse_loss(r(3), r(3), size_average=False)",
    "F.cross_entropy(r(3, 4), torch.tensor([1, 0, 1]), reduce=False)",
    "F.mse_loss(r(3), r(3), reduction='elementwise_mean')",
    "nn.MSELoss(size_average=True)",
    "nn.NLLLoss2d()",
]


@pytest.mark.parametrize("expression", WARNINGS)
def test_warnings_are_torchs(expression):
    messages = []
    for library in (torch, mica):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            evaluated(library, expression)
        messages.append([(w.category, str(w.message)) for w in caught])
    assert messages[0] == messages[1]


EMPTY = [
    "F.mse_loss(r(0), r(0))",
    "F.mse_loss(r(0, 3), r(0, 3), reduction='sum')",
    "F.l1_loss(r(0), r(0))",
    "F.nll_loss(r(0, 3), torch.zeros(0).long())",
    "F.nll_loss(r(0, 3), torch.zeros(0).long(), reduction='none')",
    "F.cross_entropy(r(0, 3), torch.zeros(0).long())",
    "F.cross_entropy(r(0, 3), torch.zeros(0).long(), reduction='sum')",
    "F.cross_entropy(r(2, 3, 0), torch.zeros(2, 0).long(), reduction='none')",
    "F.cross_entropy(r(0, 3), r(0, 3))",
    "F.cross_entropy(r(2, 3), torch.tensor([-100, -100]))",
    "F.binary_cross_entropy(r(0), r(0))",
    "F.multilabel_margin_loss(r(0, 4), torch.zeros(0, 4).long(), reduction='none')",
    "F.embedding_bag(torch.zeros(0).long(), r(3, 2), torch.zeros(3).long())",
    "F.embedding_bag(torch.zeros(0).long(), r(3, 2), torch.zeros(0).long())",
    "F.pdist(r(1, 3))",
    "F.pdist(r(0, 3))",
    "F.pdist(r(3, 0))",
    "F.l1_loss(torch.tensor([1, 2]), torch.tensor([3, 2]), reduction='none')",
    "F.l1_loss(torch.tensor([1, 2 + 1j]), torch.tensor([3j, 2]))",
]


@pytest.mark.parametrize("expression", EMPTY)
def test_edges(expression):
    theirs, ours = evaluated(torch, expression), evaluated(mica, expression)
    assert tuple(theirs.shape) == tuple(ours.shape) and str(theirs.dtype) == str(ours.dtype)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
