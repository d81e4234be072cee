"""Averages of models."""

import copy

import mica
import pytest
from mica import nn
from mica.optim.swa_utils import (
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def walk(net, steps):
    """The model after each of some random steps."""
    for _ in range(steps):
        with mica.no_grad():
            for p in net.parameters():
                p.add_(mica.randn_like(p), alpha=0.1)
        yield net


@pytest.mark.parametrize(
    "options",
    [{}, {"avg_fn": get_swa_avg_fn()}, {"multi_avg_fn": get_swa_multi_avg_fn()}],
    ids=["default", "avg_fn", "multi_avg_fn"],
)
def test_mean(options):
    net = model()
    averaged = AveragedModel(net, **options)
    sums = [mica.zeros_like(p) for p in net.parameters()]
    for now in walk(net, 5):
        for s, p in zip(sums, now.parameters(), strict=True):
            s += p.detach()
        averaged.update_parameters(now)
    for s, p in zip(sums, averaged.parameters(), strict=True):
        mica.testing.assert_close(p.detach(), s / 5)
    assert averaged.n_averaged.item() == 5
    x = mica.randn(2, 3)
    assert mica.equal(averaged(x), averaged.module(x))


@pytest.mark.parametrize("name, function", [("avg_fn", get_ema_avg_fn), ("multi_avg_fn", get_ema_multi_avg_fn)])
def test_moving_average(name, function):
    net = model()
    averaged = AveragedModel(net, **{name: function(0.8)})
    expected = None
    for now in walk(net, 4):
        averaged.update_parameters(now)
        values = [p.detach().clone() for p in now.parameters()]
        expected = values if expected is None else [0.8 * e + 0.2 * v for e, v in zip(expected, values, strict=True)]
    for e, p in zip(expected, averaged.parameters(), strict=True):
        mica.testing.assert_close(p.detach(), e)


def test_buffers_are_copied_or_averaged():
    net = nn.BatchNorm1d(2)
    copied, averaged = AveragedModel(net), AveragedModel(net, use_buffers=True)
    for value in (1.0, 3.0):
        net.running_mean.fill_(value)
        copied.update_parameters(net)
        averaged.update_parameters(net)
    assert copied.module.running_mean.tolist() == [3, 3] and averaged.module.running_mean.tolist() == [2, 2]


def test_saved_with_its_count():
    net = model()
    averaged = AveragedModel(net)
    averaged.update_parameters(net)
    saved = averaged.state_dict()
    assert next(iter(saved)) == "n_averaged" and "module.0.weight" in saved
    other = AveragedModel(model())
    other.load_state_dict(copy.deepcopy(saved))
    assert other.n_averaged.item() == 1


def test_update_bn():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    net.eval()
    data = mica.randn(40, 3) * 2 + 1
    update_bn([(data[:20],), (data[20:],)], net)
    mica.testing.assert_close(net[0].running_mean, data.mean(0))
    assert net[0].momentum == 0.1 and not net.training and net[0].num_batches_tracked.item() == 2
    update_bn([data], model())


def test_errors():
    with pytest.raises(ValueError, match=r"Invalid decay value 1.5 provided"):
        get_ema_avg_fn(1.5)
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn should be provided"):
        AveragedModel(model(), avg_fn=get_swa_avg_fn(), multi_avg_fn=get_swa_multi_avg_fn())
    optimizer = mica.optim.SGD([mica.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match="anneal_strategy must be one of 'cos' or 'linear', instead got step"):
        mica.optim.swa_utils.SWALR(optimizer, 0.1, anneal_strategy="step")
    with pytest.raises(ValueError, match="anneal_epochs must be equal or greater than 0, got -1"):
        mica.optim.swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
