"""Observers and roundings against what torch 2.13 finds for the same numbers."""

import mica as torch
import pytest
from mica.ao import quantization as q


def seen(observer):
    line = torch.linspace(-3, 3, 2001)
    for i in range(3):
        observer(line**3 / 9 * (1 + i) + 0.1 * i)
    return observer


@pytest.mark.parametrize(
    ("options", "scale", "zero_point"),
    [
        ({}, 0.07045036554336548, 125),
        ({"reduce_range": True}, 0.14145545661449432, 62),
        ({"bins": 100}, 0.0698823556303978, 126),
        ({"dtype": torch.qint8}, 0.07045036554336548, -3),
        ({"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric}, 0.07188112288713455, 0),
    ],
)
def test_histogram(options, scale, zero_point):
    observer = seen(q.HistogramObserver(**options))
    found = observer.calculate_qparams()
    assert found[0].item() == pytest.approx(scale, rel=1e-6) and found[1].item() == zero_point
    assert observer.histogram.sum().item() == 6003
    other = q.HistogramObserver(**options)
    other.load_state_dict(observer.state_dict())
    assert torch.equal(other.calculate_qparams()[0], found[0])


def test_histogram_of_one_number_then_more():
    observer = q.HistogramObserver()
    observer(torch.full((10,), 2.0))
    observer(torch.tensor([-1.0, 3.0]))
    assert observer.histogram.sum().item() == 12 and observer.min_val.item() == -1
    with pytest.raises(ValueError, match="must be finite"):
        observer(torch.tensor([float("nan")]))


def test_rounding_keeps_torchs_state():
    rounding = q.default_per_channel_weight_fake_quant()
    rounding(torch.tensor([[-1.0, 2.0, 0.33], [1.0, 2.0, 3.0]]))
    state = rounding.state_dict()
    assert list(state) == [
        "fake_quant_enabled", "observer_enabled", "scale", "zero_point", "activation_post_process.eps",
        "activation_post_process.min_val", "activation_post_process.max_val",
    ]  # fmt: skip
    assert state["scale"].tolist() == pytest.approx([2 / 127.5, 3 / 127.5])
    q.disable_fake_quant(rounding)
    x = torch.tensor([[0.123, 0.2, 0.3]] * 2)
    assert torch.equal(rounding(x), x)


def test_fixed_parameters():
    rounding = q.default_fixed_qparams_range_0to1_fake_quant()
    assert rounding(torch.tensor([0.5, 0.001, 2.0])).tolist() == pytest.approx([0.5, 0.0, 255 / 256])


def test_wrong_arguments():
    with pytest.raises(AssertionError, match="must include 0"):
        q.MinMaxObserver(quant_min=5, quant_max=9)
    with pytest.raises(NotImplementedError, match="reduce range"):
        q.MinMaxObserver(qscheme=torch.per_tensor_symmetric, reduce_range=True)
    with pytest.raises(ValueError, match="observer instance"):
        q.QConfig(q.MinMaxObserver(), q.MinMaxObserver)
    with pytest.raises(AssertionError, match="known are"):
        q.get_default_qconfig("tpu")
