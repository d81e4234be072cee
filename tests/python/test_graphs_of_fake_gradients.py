"""Gradients that make_fx takes of fake tensors."""

import mica as torch
import pytest
from mica.fx.experimental.proxy_tensor import make_fx


def test_gradients_of_real_tensors_that_a_fake_trace_reads():
    weight = torch.randn(4, requires_grad=True)
    layer = torch.nn.Linear(4, 4)

    def gradient(x):
        return torch.autograd.grad((layer(x) * weight).sum(), (weight, layer.weight, layer.bias))

    x = torch.randn(4)
    for mode in ("fake", "symbolic"):
        traced = make_fx(gradient, tracing_mode=mode, _allow_non_fake_inputs=True)(torch.randn(4))
        assert all(a.allclose(b) for a, b in zip(traced(x), gradient(x), strict=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nn.functional.avg_pool1d(x, 2),
        lambda x: torch.nn.functional.pad(x, (1, 1), mode="reflect"),
        lambda x: torch.nn.functional.nll_loss(
            x.log_softmax(1), x.new_zeros(x.shape[0], x.shape[2], dtype=torch.int64)
        ),
    ],
)
def test_gradients_of_windows_leave_sizes_open(function):
    def gradient(x):
        return torch.autograd.grad(function(x).sum(), x)[0]

    traced = make_fx(gradient, tracing_mode="symbolic")(torch.randn(2, 4, 6, requires_grad=True))
    for shape in ((2, 4, 6), (3, 5, 8)):
        x = torch.randn(shape, requires_grad=True)
        assert traced(x).allclose(gradient(x), atol=1e-6)
