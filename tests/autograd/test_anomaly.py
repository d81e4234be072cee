"""Anomaly detection shows the forward call, and refuses NaN."""

import warnings

import mica as torch
import pytest
from mica.autograd import Function, detect_anomaly, set_detect_anomaly


class Bad(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("bad backward")


def run(build, expected, match):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with detect_anomaly():
            y = build(torch.zeros(1, requires_grad=True))
            with pytest.raises(expected, match=match):
                y.backward()
    return [str(w.message) for w in caught]


def the_guilty_line(x):
    return Bad.apply(x)


def test_the_traceback_of_the_forward_call_is_shown():
    messages = run(the_guilty_line, ValueError, "bad backward")
    assert "Anomaly Detection has been enabled" in messages[0]
    assert "Error detected in BadBackward. Traceback of forward call that caused the error" in messages[1]
    assert "the_guilty_line" in messages[1]


def test_nan_is_an_error():
    messages = run(lambda x: (x / x).sum() * 0, RuntimeError, "returned nan values in its 0th output")
    assert any("Error detected in DivBackward0" in message for message in messages)


def test_nan_may_be_allowed_and_modes_are_restored():
    x = torch.zeros(1, requires_grad=True)
    with set_detect_anomaly(True, check_nan=False):
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
        (x / x).backward()
    assert not torch.is_anomaly_enabled()
    assert torch.is_anomaly_check_nan_enabled()
