"""Arguments at and beyond the edges of what layers take: clear errors, nothing changed, and torch's results where it has some."""

import mica
import pytest
from mica import nn
from mica.nn import functional as F

LARGEST = 2**63 - 1


def ones(*shape):
    return mica.ones(shape)


TOO_LARGE = {
    "conv2d, dilation": lambda: F.conv2d(ones(1, 4, 3, 3), ones(4, 4, 3, 3), None, 1, 1, (LARGEST, 1)),
    "conv2d, padding": lambda: F.conv2d(ones(1, 4, 3, 3), ones(4, 4, 3, 3), None, 1, 2**62),
    "conv_transpose2d, dilation": lambda: F.conv_transpose2d(
        ones(1, 4, 3, 3), ones(4, 2, 3, 3), None, 2, 1, 1, 1, (LARGEST, 1)
    ),
    "conv_transpose1d, stride": lambda: F.conv_transpose1d(ones(1, 4, 3), ones(4, 2, 3), None, LARGEST),
    "conv_transpose1d of many": lambda: F.conv_transpose1d(
        mica.empty(1, 1, 2**40, device="meta"), ones(1, 1, 1), None, 2**30
    ),
    "fold": lambda: F.fold(ones(2, 12, 12), (4, 5), 2**32),
    "fold into a large image": lambda: F.fold(ones(2, 4, 12), 2**31 - 1, 2, padding=2**31 - 1),
    "unfold": lambda: F.unfold(ones(2, 3, 4, 4), 2**31 - 1, padding=2**30),
    "avg_pool2d": lambda: F.avg_pool2d(ones(2, 2, 7, 6), 3, 2**40),
    "max_pool1d": lambda: F.max_pool1d(ones(2, 2, 7), 2**32, dilation=2**32),
    "max_pool3d": lambda: F.max_pool3d(ones(2, 2, 7, 6), 3, 1, 1, -(2**63)),
    "pad": lambda: F.pad(ones(3), (LARGEST, LARGEST)),
    "pad, replicate": lambda: F.pad(ones(1, 3), (LARGEST, LARGEST), "replicate"),
    "pad, circular": lambda: F.pad(ones(1, 3), (-(2**63), -(2**63)), "circular"),
    "ctc_loss": lambda: F.ctc_loss(ones(6, 3, 4), mica.tensor([1, 2, 3]), (6, 6, 6), (LARGEST, LARGEST, 5)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_that_are_too_large(name):
    with pytest.raises(RuntimeError):
        TOO_LARGE[name]()


def test_steps_beyond_the_input():
    filters = ones(4, 4, 1, 1)
    assert F.conv2d(ones(1, 4, 3, 3), filters, None, LARGEST, 0, LARGEST).reshape(-1).tolist() == [4.0] * 4
    assert F.conv2d(ones(1, 4, 6, 7), ones(2, 2, 3, 3), None, (2, LARGEST), (1, 2), (1, 2), 2).shape == (1, 2, 3, 1)


@pytest.mark.parametrize("window", [(2**31 - 1, 2**31 - 1, 2**30 - 1), (1000001, 1, 500000), (3, 2**31 - 1, 1)])
def test_pooling_over_windows_far_larger_than_the_input(window):
    x = mica.arange(168.0).reshape(2, 2, 7, 6).requires_grad_()
    kernel, stride, padding = window
    for layout in (mica.contiguous_format, mica.channels_last):
        given = x.contiguous(memory_format=layout)
        largest = F.max_pool2d(given, kernel, stride, padding)
        mean = F.avg_pool2d(given, kernel, stride, padding, count_include_pad=False)
        if kernel > 3:
            assert (largest == x.amax((2, 3), keepdim=True)).all()
            assert mica.allclose(mean, x.mean((2, 3), keepdim=True).expand_as(mean))
        else:
            assert largest.reshape(-1).tolist() == [7, 49, 91, 133]
            assert mean.reshape(-1).tolist() == [3.5, 45.5, 87.5, 129.5]
        x.grad = None
        mean.sum().backward()
        assert x.grad.sum().item() == pytest.approx(mean.numel())


def test_a_failed_batch_norm_counts_no_batch():
    layer = nn.BatchNorm1d(3, momentum=None)
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    for bad in (ones(4, 2), ones(4, 3).double(), ones(1, 3), ones(2, 3, 4, 5)):
        with pytest.raises((RuntimeError, ValueError)):
            layer(bad)
    assert all(mica.equal(v, before[k]) for k, v in layer.state_dict().items())
    batches = [mica.randn(4, 3) for _ in range(3)]
    for batch in batches:
        layer(batch)
    assert layer.num_batches_tracked.item() == 3
    assert mica.allclose(layer.running_mean, mica.stack(batches).mean((0, 1)))


def test_no_channels():
    x = mica.ones(4, 0, 5, requires_grad=True)
    y = F.instance_norm(x, weight=ones(0), bias=ones(0))
    y.sum().backward()
    assert y.shape == x.grad.shape == (4, 0, 5)


def test_classes_are_counted_in_the_input():
    """torch divides by the input's classes, also where the target has a dimension more."""
    loss = F.multilabel_soft_margin_loss(mica.zeros(3, 4), mica.zeros(1, 3, 4), reduction="none")
    assert loss.shape == (1, 4) and mica.allclose(loss, mica.full((1, 4), 0.75 * 0.6931472))


def test_arguments_that_do_not_belong_together():
    with pytest.raises(RuntimeError, match="eps must be non-negative"):
        F.cosine_similarity(ones(2, 3), ones(2, 3), eps=-1.0)
    with pytest.raises(RuntimeError, match="All tensors must have the same dtype"):
        F.bilinear(ones(2, 3), ones(2, 4).double(), ones(5, 3, 4))
    with pytest.raises(RuntimeError, match="same device, but found at least two devices, cpu and meta"):
        F.layer_norm(ones(2, 3), (3,), mica.ones(3, device="meta"))
    with pytest.raises(RuntimeError, match="array of sliding blocks as \\(-4, -3\\), which is too small"):
        F.fold(ones(1, 12, 12), (4, 5), 2, dilation=8)
    for kernel_size, output_size in (((1,), (3, 3)), ((2, 2), (3,))):
        with pytest.raises(RuntimeError, match="must either be a single Int or tuple of Ints"):
            F.fractional_max_pool2d(ones(1, 2, 7, 7), kernel_size, output_size)
    for mode in ("sum", "max"):
        with pytest.raises(RuntimeError, match="Index 1 of input takes value 4 .*idx < num_embeddings"):
            F.embedding_bag(mica.tensor([0, 4]), ones(4, 3), mica.tensor([0]), mode=mode)
    with pytest.warns(UserWarning, match="assuming that channel-wise 1D dropout behavior is desired"):
        F.dropout2d(ones(2, 3, 4))


def test_averages_of_nothing():
    assert F.adaptive_avg_pool2d(ones(3, 4, 0), 1).isnan().all()
    assert F.adaptive_avg_pool3d(ones(0, 2, 4, 5), 1).shape == (0, 1, 1, 1)
    assert F.adaptive_avg_pool3d(ones(0, 2, 4, 5), 2).shape == (0, 2, 2, 2)
    with pytest.raises(RuntimeError, match="non-zero size for non-batch dimensions"):
        F.adaptive_avg_pool2d(ones(2, 3, 0, 3), 2)


@pytest.mark.parametrize("dtypes", [(mica.float64, mica.float32), (mica.float32, mica.bfloat16)])
@pytest.mark.parametrize("weight", [None, 1.0])
def test_the_loss_of_logits_has_the_dtype_of_the_target(dtypes, weight):
    logits, target = (mica.full((3,), 0.5, dtype=d) for d in dtypes)
    weight = None if weight is None else mica.ones(3, dtype=dtypes[0])
    for reduction in ("none", "mean"):
        assert F.binary_cross_entropy_with_logits(logits, target, weight, reduction=reduction).dtype == dtypes[1]
