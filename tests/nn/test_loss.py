"""Losses: gradients of both orders, what torch's words say, threads, extreme inputs. Values: test_layers_recorded.py."""

import math

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck

F64 = mica.float64


def numbers(*shape, scale=1.0):
    return (mica.randn(*shape, dtype=F64) * scale).requires_grad_()


def labels(*shape, classes):
    return mica.randint(0, classes, shape)


WEIGHT = mica.tensor([0.5, 1.5, 2.0, 0.7], dtype=F64)

# Twice differentiable, as torch has them.
SMOOTH = {
    "mse": lambda x, y: F.mse_loss(x, y),
    "mse none": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "mse weighted": lambda x, y: F.mse_loss(x, y, weight=WEIGHT.expand(3, 4)),
    "smooth l1": lambda x, y: F.smooth_l1_loss(x, y, beta=0.7),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.7, reduction="sum"),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "bce weighted": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), WEIGHT, reduction="none"),
    "bce of logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction="sum"),
    "bce of logits, weighted": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y.sigmoid(), WEIGHT, pos_weight=WEIGHT
    ),
    "kl": lambda x, y: F.kl_div(x, y.exp(), reduction="batchmean"),
    "kl of logarithms": lambda x, y: F.kl_div(x, y, reduction="sum", log_target=True),
    "poisson": lambda x, y: F.poisson_nll_loss(x, y.exp(), full=True),
    "gaussian": lambda x, y: F.gaussian_nll_loss(x, y, y.exp()),
    "soft margin": lambda x, y: F.soft_margin_loss(x, y),
    "multilabel soft margin": lambda x, y: F.multilabel_soft_margin_loss(x, y.sigmoid()),
    "cross entropy of probabilities": lambda x, y: F.cross_entropy(x, y.softmax(1), WEIGHT, label_smoothing=0.1),
    "cosine": lambda x, y: F.cosine_similarity(x, y),
    "distance": lambda x, y: F.pairwise_distance(x, y),
    "cosine embedding": lambda x, y: F.cosine_embedding_loss(x, y, mica.tensor([1, -1, 1])),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, x.flip(0), margin=9.0),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_both_orders(name):
    inputs = numbers(3, 4), numbers(3, 4)
    assert gradcheck(SMOOTH[name], inputs)
    assert gradgradcheck(SMOOTH[name], inputs)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (2, 4, 2, 3)], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_cross_entropy_of_labels(reduction, shape, smoothing, weight):
    y = labels(shape[0], *shape[2:], classes=4)
    y.view(-1)[1] = 2

    def loss(x):
        return F.cross_entropy(x, y, weight, reduction=reduction, label_smoothing=smoothing, ignore_index=2)

    x = numbers(*shape)
    assert gradcheck(loss, (x,)) and gradgradcheck(loss, (x,))
    plain = F.nll_loss(x.log_softmax(1), y, weight, reduction=reduction, ignore_index=2)
    if smoothing == 0:
        mica.testing.assert_close(loss(x), plain)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_nll_of_labels(reduction):
    y = labels(2, 3, classes=4)

    def loss(x):
        return F.nll_loss(x, y, WEIGHT, reduction=reduction)

    x = numbers(2, 4, 3)
    assert gradcheck(loss, (x,))
    (g,) = mica.autograd.grad(loss(x).sum(), x, create_graph=True)
    assert g.shape == x.shape


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "targets", [mica.tensor([[1, 1, 2], [3, 1, 0]]), mica.tensor([1, 1, 2, 3, 1])], ids=["2d", "1d"]
)
def test_ctc_gradient(reduction, targets):
    def loss(x):
        return F.ctc_loss(x.log_softmax(2), targets, (8, 6), (3, 2), reduction=reduction)

    assert gradcheck(loss, (numbers(8, 2, 4),))


def test_ctc_against_the_sum_over_all_paths():
    """The probability of a target is the sum over all paths that collapse to it."""
    import itertools

    time, classes, target = 4, 3, (1, 2)
    log_probs = numbers(time, 1, classes).log_softmax(2)
    total = 0.0
    for path in itertools.product(range(classes), repeat=time):
        collapsed = tuple(c for c, _ in itertools.groupby(path) if c)
        if collapsed == target:
            total += math.exp(sum(log_probs[t, 0, c].item() for t, c in enumerate(path)))
    loss = F.ctc_loss(log_probs, mica.tensor([target]), (time,), (2,), reduction="sum")
    assert math.isclose(loss.item(), -math.log(total), rel_tol=1e-12)


def test_ctc_refuses_labels_outside_the_classes():
    with pytest.raises(IndexError, match="Target 9 is out of bounds"):
        F.ctc_loss(mica.randn(4, 1, 3).log_softmax(2), mica.tensor([[9]]), (4,), (1,))


def test_ctc_can_be_differentiated_once():
    x = mica.randn(8, 2, 5, dtype=F64, requires_grad=True)
    loss = F.ctc_loss(x.log_softmax(2), mica.tensor([[1, 2], [3, 1]]), (8, 6), (2, 2))
    (gradient,) = mica.autograd.grad(loss, x, create_graph=True)
    assert gradient.requires_grad
    with pytest.raises(RuntimeError, match="derivative for aten::_ctc_loss_backward is not implemented"):
        gradient.sum().backward()


MARGINS = {"one label": F.multi_margin_loss, "several labels": F.multilabel_margin_loss}


@pytest.mark.parametrize("loss", MARGINS.values(), ids=MARGINS)
def test_margins_of_one_number(loss):
    x = mica.tensor(0.5, requires_grad=True)
    for target in (mica.tensor(0), mica.tensor([0])):
        assert loss(x, target, reduction="sum").tolist() == 0
    loss(x, mica.tensor(0)).backward()
    assert x.grad.item() == 0
    with pytest.raises(RuntimeError, match="expected scalar type Long but found Float"):
        loss(mica.randn(2, 1), mica.zeros((2,) if loss is F.multi_margin_loss else (2, 1)))


@pytest.mark.parametrize(
    "shape,target,words",
    [
        ((2, 3, 5), (2, 4), r"Expected target size \[2, 5\], got \[2, 4\]"),
        ((2, 3, 5, 6), (2, 5), "only batches of spatial targets supported .* targets of dimension: 2"),
        ((2, 3, 5, 6), (2, 5, 5), r"size mismatch \(got input: \[2, 3, 5, 6\] , target: \[2, 5, 5\]"),
        ((2, 3, 5, 6, 7), (2, 5, 6), r"Expected target size \[2, 5, 6, 7\], got \[2, 5, 6\]"),
    ],
)
def test_targets_of_other_sizes(shape, target, words):
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(RuntimeError, match=words):
            loss(mica.randn(shape), mica.zeros(target, dtype=mica.int64))


def test_soft_margin_names_its_input_first():
    with pytest.raises(RuntimeError, match=r"tensor a \(4\) must match the size of tensor b \(5\)"):
        F.soft_margin_loss(mica.randn(5, 4), mica.randn(5, 5))


def test_large_logits_lose_no_digits():
    x = mica.tensor([[1e4, 1e4 + 1, 1e4 - 2]], requires_grad=True)
    loss = F.cross_entropy(x, mica.tensor([0]))
    loss.backward()
    expected = F.cross_entropy(mica.tensor([[0.0, 1, -2]]), mica.tensor([0]))
    mica.testing.assert_close(loss, expected)
    mica.testing.assert_close(x.grad.sum(), mica.tensor(0.0), atol=1e-6, rtol=0)


def test_infinite_logits():
    x = mica.tensor([[-math.inf, 0.0, 1.0]], requires_grad=True)
    F.cross_entropy(x, mica.tensor([1])).backward()
    assert mica.isfinite(x.grad).all() and x.grad[0, 0] == 0
    assert F.cross_entropy(x, mica.tensor([0])).item() == math.inf
    assert math.isnan(F.cross_entropy(mica.full((1, 3), -math.inf), mica.tensor([0])).item())


def test_nan_reaches_the_loss_and_its_gradient():
    x, y = mica.tensor([1.0, math.nan], requires_grad=True), mica.zeros(2)
    for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
        (g,) = mica.autograd.grad(loss(x, y), x)
        assert math.isnan(loss(x, y).item()) and math.isnan(g[1].item()) and not math.isnan(g[0].item())


def test_binary_cross_entropy_at_the_ends():
    p = mica.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, mica.tensor([0.0, 1.0, 1.0, 0.0]), reduction="none")
    assert loss.tolist() == [0, 0, 100, 100]
    loss.sum().backward()
    assert mica.isfinite(p.grad).all()


def test_a_failed_call_leaves_gradients_alone():
    x = mica.randn(2, 3, requires_grad=True)
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        F.cross_entropy(x, mica.tensor([0, 3]))
    assert x.grad is None


def test_results_do_not_depend_on_threads():
    x, y, t = mica.randn(700, 300), mica.randn(700, 300), labels(700, classes=300)
    threads, results = mica.get_num_threads(), []
    for n in (1, 2, 3):
        mica.set_num_threads(n)
        a = x.clone().requires_grad_()
        F.cross_entropy(a, t).backward()
        results.append((F.mse_loss(x, y), F.cross_entropy(x, t), F.nll_loss(x, t), a.grad))
    mica.set_num_threads(threads)
    for other in results[1:]:
        assert all(mica.equal(p, q) for p, q in zip(results[0], other, strict=True))


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss])
def test_broadcast_warns_and_sums_gradients(loss):
    x, y = mica.randn(3, 1, requires_grad=True), mica.randn(4, requires_grad=True)
    with pytest.warns(UserWarning, match=r"Using a target size \(torch.Size\(\[4\]\)\) that is different"):
        value = loss(x, y)
    value.backward()
    assert x.grad.shape == (3, 1) and y.grad.shape == (4,)
    with pytest.warns(UserWarning, match="Using a target size"):
        none = loss(x, y, reduction="none")
    mica.testing.assert_close(value, none.mean())


def test_promotion():
    x, y = mica.randn(3), mica.randn(3, dtype=F64)
    assert F.mse_loss(x, y).dtype == F64 and F.mse_loss(x, mica.tensor([1, 2, 3])).dtype == mica.float32


def test_legacy_flags():
    x, y = mica.randn(3), mica.randn(3)
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert mica.equal(F.mse_loss(x, y, size_average=False), F.mse_loss(x, y, reduction="sum"))
    with pytest.warns(UserWarning, match="please use reduction='none' instead"):
        assert F.l1_loss(x, y, reduce=False).shape == (3,)


def test_layouts_stay():
    x = mica.randn(2, 3, 4, 5).contiguous(memory_format=mica.channels_last)
    y = mica.randn(2, 3, 4, 5).contiguous(memory_format=mica.channels_last)
    assert F.mse_loss(x, y, reduction="none").is_contiguous(memory_format=mica.channels_last)
    x.requires_grad_()
    F.cross_entropy(x, labels(2, 4, 5, classes=3)).backward()
    assert x.grad.is_contiguous(memory_format=mica.channels_last)


def test_one_node_and_its_name():
    x = mica.randn(3, 4, requires_grad=True)
    assert type(F.mse_loss(x, mica.zeros(3, 4)).grad_fn).__name__ == "MseLossBackward0"
    y = mica.tensor([0, 1, 2])
    assert type(F.cross_entropy(x, y).grad_fn).__name__ == "NllLossBackward0"
    assert type(F.nll_loss(x, y).grad_fn).__name__ == "NllLossBackward0"


def test_losses_take_subclasses():
    calls = []

    class Logged(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    F.mse_loss(mica.randn(3).as_subclass(Logged), mica.randn(3))
    assert "mse_loss" in calls


def test_weights_are_buffers():
    loss = nn.CrossEntropyLoss(weight=mica.ones(3))
    assert list(loss.state_dict()) == ["weight"] and list(nn.BCEWithLogitsLoss().state_dict()) == []


def test_adaptive_softmax_agrees_with_itself():
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0).double()
    x, y = numbers(20, 8), labels(20, classes=12)
    output, loss = layer(x, y)
    full = layer.log_prob(x)
    mica.testing.assert_close(full.exp().sum(1), mica.ones(20, dtype=F64))
    mica.testing.assert_close(output, full.gather(1, y.unsqueeze(1)).squeeze(1))
    mica.testing.assert_close(loss, -output.mean())
    assert mica.equal(layer.predict(x), full.argmax(1))
    assert layer(x[0], y[0]).output.shape == ()
