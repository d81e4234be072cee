"""Normalisations: gradients of both orders, running statistics, layouts, state, threads. Values: test_layers_recorded."""

import copy

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck

F64 = mica.float64


def numbers(*shape):
    return mica.randn(*shape, dtype=F64).requires_grad_()


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_one_image_with_a_gradient_in_another_order(training):
    """torch 2.13 reads such a gradient in the input's order."""
    x, weight, bias = numbers(1, 128, 4, 4), numbers(128), numbers(128)
    made = F.batch_norm(x, mica.zeros(128, dtype=F64), mica.ones(128, dtype=F64), weight, bias, training)
    given = mica.randn(1, 16, 128, dtype=F64).transpose(1, 2).view(1, 128, 4, 4)
    assert given.stride() == (128, 1, 512, 128)
    found = mica.autograd.grad(made, (x, weight, bias), given, retain_graph=True)
    for a, b in zip(found, mica.autograd.grad(made, (x, weight, bias), given.contiguous()), strict=True):
        mica.testing.assert_close(a, b)
    mica.testing.assert_close(found[2], given.sum((0, 2, 3)))


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2), (2, 3, 2, 2)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradients(shape, training):
    mean, var = mica.randn(3, dtype=F64), mica.rand(3, dtype=F64) + 0.5

    def norm(x, w, b):
        return F.batch_norm(x, None if training else mean, None if training else var, w, b, training, eps=1e-2)

    inputs = numbers(*shape), numbers(3), numbers(3)
    assert gradcheck(norm, inputs) and gradgradcheck(norm, inputs)


def test_batch_norm_gradients_in_channels_last():
    def norm(x, w, b):
        return F.batch_norm(x.contiguous(memory_format=mica.channels_last), None, None, w, b, True)

    inputs = numbers(3, 4, 2, 2), numbers(4), numbers(4)
    assert gradcheck(norm, inputs) and gradgradcheck(norm, inputs)


@pytest.mark.parametrize("weight", [True, False])
def test_group_norm_gradients(weight):
    def norm(x, w, b):
        return F.group_norm(x, 2, w if weight else None, b, eps=1e-2)

    inputs = numbers(2, 4, 3), numbers(4), numbers(4)
    assert gradcheck(norm, inputs) and gradgradcheck(norm, inputs)


def test_instance_norm_gradients():
    def plain(x, w, b):
        return F.instance_norm(x, weight=w, bias=b, eps=1e-2)

    def tracked(x, w, b):
        return F.instance_norm(x, mica.zeros(3, dtype=F64), mica.ones(3, dtype=F64), w, b, eps=1e-2)

    inputs = numbers(2, 3, 4), numbers(3), numbers(3)
    assert gradcheck(plain, inputs) and gradgradcheck(plain, inputs)
    assert gradcheck(tracked, inputs)


@pytest.mark.parametrize("wanted", range(1, 8))
def test_only_the_wanted_gradients(wanted):
    needs = [bool(wanted >> i & 1) for i in range(3)]
    tensors = [mica.randn(s, dtype=F64, requires_grad=n) for s, n in zip([(5, 3, 4), 3, 3], needs, strict=True)]
    F.batch_norm(tensors[0], None, None, *tensors[1:], True).cos().sum().backward()
    F.group_norm(tensors[0], 3, *tensors[1:]).cos().sum().backward()
    assert [t.grad is not None for t in tensors] == needs


def test_running_statistics():
    layer, x = nn.BatchNorm1d(2, momentum=0.25, dtype=F64), mica.randn(6, 2, dtype=F64)
    layer(x)
    mica.testing.assert_close(layer.running_mean, 0.25 * x.mean(0))
    mica.testing.assert_close(layer.running_var, 0.75 + 0.25 * x.var(0))
    assert layer.num_batches_tracked.item() == 1
    layer.eval()
    before = copy.deepcopy(layer.state_dict())
    mica.testing.assert_close(layer(x), (x - layer.running_mean) / (layer.running_var + layer.eps).sqrt())
    assert all(mica.equal(v, before[k]) for k, v in layer.state_dict().items())


def test_cumulative_average():
    layer, batches = nn.BatchNorm1d(2, momentum=None, dtype=F64), [mica.randn(6, 2, dtype=F64) for _ in range(4)]
    for x in batches:
        layer(x)
    mica.testing.assert_close(layer.running_mean, mica.stack([x.mean(0) for x in batches]).mean(0))
    mica.testing.assert_close(layer.running_var, mica.stack([x.var(0) for x in batches]).mean(0))


def test_two_batches_before_one_backward():
    """Running statistics change between them; that must not count as a change of what backward needs."""
    layer = nn.BatchNorm1d(3)
    x, y = mica.randn(4, 3, requires_grad=True), mica.randn(4, 3, requires_grad=True)
    (layer(x).square().sum() + layer(y).cos().sum()).backward()
    assert x.grad is not None and y.grad is not None


def test_strided_running_statistics():
    mean, var = mica.zeros(6)[::2], mica.ones(6)[::2]
    x = mica.randn(5, 3)
    F.batch_norm(x, mean, var, training=True, momentum=1.0)
    mica.testing.assert_close(mean, x.mean(0))
    mica.testing.assert_close(var, x.var(0))


def test_an_empty_batch_changes_nothing():
    layer = nn.BatchNorm1d(3)
    x = mica.empty(0, 3, 2, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == (0, 3, 2) and x.grad.shape == (0, 3, 2)
    assert layer.running_mean.tolist() == [0, 0, 0] and layer.running_var.tolist() == [1, 1, 1]
    assert layer.weight.grad.tolist() == [0, 0, 0]


def test_large_means_keep_their_digits():
    x = mica.randn(64, 8) + 1000
    layer = nn.BatchNorm1d(8)
    layer(x)
    wide = x.double()
    mica.testing.assert_close(layer.running_var.double(), 0.9 + 0.1 * wide.var(0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(700, 60), (16, 30, 20, 20)], ids=str)
def test_results_do_not_depend_on_threads(shape):
    x, results, threads = mica.randn(shape), [], mica.get_num_threads()
    for n in (1, 2, 3):
        mica.set_num_threads(n)
        a = x.clone().requires_grad_()
        w = mica.ones(shape[1], requires_grad=True)
        y = F.batch_norm(a, None, None, w, None, True)
        z = F.group_norm(a, 5, w)
        (y.cos().sum() + z.sin().sum()).backward()
        results.append((y, z, a.grad, w.grad))
    mica.set_num_threads(threads)
    for other in results[1:]:
        assert all(mica.equal(p, q) for p, q in zip(results[0], other, strict=True))


@pytest.mark.parametrize("norm", [lambda x: F.batch_norm(x, None, None, training=True), lambda x: F.group_norm(x, 2)])
def test_channels_last_stays(norm):
    x = mica.randn(2, 4, 3, 5).contiguous(memory_format=mica.channels_last).requires_grad_()
    y = norm(x)
    assert y.is_contiguous(memory_format=mica.channels_last)
    mica.testing.assert_close(y, norm(x.contiguous()))


@pytest.mark.parametrize("track", [False, True])
def test_instance_norm_is_contiguous(track):
    x = mica.randn(2, 3, 4, 5).to(memory_format=mica.channels_last)
    norm = nn.InstanceNorm2d(3, affine=True, track_running_stats=track)
    assert norm(x).is_contiguous()
    assert mica.allclose(norm(x), norm(x.contiguous()))
    assert norm.eval()(x).is_contiguous()


def test_convert_sync_batchnorm():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.BatchNorm2d(2, affine=False)))
    inner = net[1]
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(net[1], nn.SyncBatchNorm) and isinstance(net[2][0], nn.SyncBatchNorm)
    assert net[1].weight is inner.weight and net[1].running_mean is inner.running_mean
    net[1](mica.randn(5, 4))
    assert inner.num_batches_tracked.item() == 1


def test_state_without_num_batches_tracked():
    """States of version 1 have no count."""
    layer = nn.BatchNorm1d(2)
    layer.num_batches_tracked.fill_(5)
    state = layer.state_dict()
    del state["num_batches_tracked"]
    state._metadata[""]["version"] = 1
    layer.load_state_dict(state)
    assert layer.num_batches_tracked.item() == 5


def test_instance_norm_refuses_statistics_of_old():
    layer = nn.InstanceNorm1d(2)
    with pytest.raises(RuntimeError, match="Unexpected running stats buffer"):
        layer.load_state_dict({"running_mean": mica.zeros(2), "running_var": mica.ones(2)})


def test_instance_norm_warns_of_another_size():
    with pytest.warns(UserWarning, match="does not match num_features"):
        nn.InstanceNorm1d(3)(mica.randn(2, 4, 5))


def test_track_running_stats_switched_off():
    layer = nn.BatchNorm1d(2)
    layer.track_running_stats = False
    layer(mica.randn(4, 2))
    assert layer.running_mean.tolist() == [0, 0] and layer.num_batches_tracked.item() == 0


def test_an_empty_list_is_taken_as_it_is():
    nothing = mica.ones(0)
    assert F.batch_norm(nothing, None, None, training=True).shape == (0,)
    assert F.batch_norm(nothing, mica.zeros(0), mica.ones(0)).shape == (0,)
    assert mica.batch_norm(nothing, None, None, None, None, False, 0.1, 1e-5, True).shape == (0,)


def test_statistics_and_averages_into_tensors():
    x = mica.randn(4, 3, 6, 6)
    outs = tuple(mica.empty(0) for _ in range(3))
    mica.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5, out=outs)
    for out, expected in zip(outs, mica.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), strict=True):
        assert mica.equal(out, expected)
    out = mica.empty(0)
    assert F.avg_pool2d(x, 2, out=out) is out and mica.equal(out, F.avg_pool2d(x, 2))


@pytest.mark.parametrize("dtype", [mica.bfloat16, mica.float16])
def test_native_statistics_have_the_parameters_dtype(dtype):
    x = mica.randn(4, 2, 3).to(dtype)
    whole, mean, rstd = mica.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    assert whole.dtype == mean.dtype == rstd.dtype == dtype
    weight = mica.ones(2)
    assert [t.dtype for t in mica.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5)[1:]] == [
        mica.float32
    ] * 2
    assert [t.dtype for t in mica.native_group_norm(x, None, None, 4, 2, 3, 2, 1e-5)] == [dtype] * 3
    assert [t.dtype for t in mica.native_group_norm(x, weight, weight, 4, 2, 3, 2, 1e-5)[1:]] == [mica.float32] * 2
    # The gradient is computed from the statistics before they are rounded.
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    mica.native_batch_norm(a, None, None, None, None, True, 0.1, 1e-5)[0].square().sum().backward()
    F.batch_norm(b, None, None, training=True).square().sum().backward()
    assert mica.equal(a.grad, b.grad)


def test_native_batch_norm_of_nothing():
    statistics = mica.zeros(0), mica.ones(0)
    results = mica.native_batch_norm(mica.empty(0), None, None, *statistics, False, 0.1, 1e-5)
    assert [tuple(t.shape) for t in results] == [(0,)] * 3
    with pytest.raises(
        RuntimeError, match=r"input tensor must have at least one element, but got input_sizes = \[0, 3\]"
    ):
        mica.native_batch_norm(mica.empty(0, 3), None, None, None, None, True, 0.1, 1e-5)


def test_parameters_elsewhere_are_refused_on_meta_too():
    x = mica.empty(4, 3, 2, device="meta")
    for device in ("meta", "cpu"):
        weight = mica.ones(3, device=device)
        for call in (
            lambda weight=weight: F.batch_norm(x, None, None, weight, training=True),
            lambda weight=weight: F.group_norm(x, 3, weight),
            lambda weight=weight: F.layer_norm(x, (2,), weight[:2]),
        ):
            if device == "meta":
                assert call().is_meta
            else:
                with pytest.raises(RuntimeError, match="found at least two devices, meta and cpu"):
                    call()
    assert F.nll_loss(mica.empty(2, 3, device="meta"), mica.tensor([0, 2])).is_meta  # indices are not read


def test_a_refused_update_of_running_statistics_changes_neither():
    mean, var = mica.zeros(3), mica.ones(1).expand(3)
    with pytest.raises(RuntimeError, match="more than one element"):
        F.instance_norm(mica.randn(2, 3, 4), mean, var, use_input_stats=True)
    assert mica.equal(mean, mica.zeros(3))
