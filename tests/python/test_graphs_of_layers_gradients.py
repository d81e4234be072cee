"""make_fx shows gradients of decompositions, pools and losses that the engine computes in one piece."""

import mica as torch
import pytest
from mica.fx.experimental.proxy_tensor import make_fx
from mica.nn import functional as F

LABELS = torch.tensor([[1, 2], [2, 0]])


def loss(reduction):
    return lambda x: F.ctc_loss(
        x.log_softmax(2), LABELS, [4, 3], [2, 1], reduction=reduction, zero_infinity=reduction == "none"
    )


CASES = {
    "lu": (torch.linalg.lu, (3, 3)),
    "lu of high ones": (torch.linalg.lu, (4, 3)),
    "lu of wide ones": (torch.linalg.lu, (2, 3, 4)),
    "fractional_max_pool2d": (lambda x: F.fractional_max_pool2d(x, 2, 2, _random_samples=torch.full((1, 1, 2), 0.5)), (1, 1, 5, 5)),
    "fractional_max_pool3d": (
        lambda x: F.fractional_max_pool3d(x, 2, output_ratio=0.5, _random_samples=torch.full((1, 1, 3), 0.5), return_indices=True)[0],
        (1, 1, 5, 5, 5),
    ),
    **{f"ctc_loss {reduction}": (loss(reduction), (4, 2, 5)) for reduction in ("none", "sum", "mean")},
}  # fmt: skip


@pytest.mark.parametrize("function, sizes", CASES.values(), ids=CASES)
def test_gradients_are_shown(function, sizes):
    def gradient(x):
        x = x.detach().requires_grad_()
        made = function(x)
        made = sum((each * each).sum() for each in made) if isinstance(made, tuple) else (made * made).sum()
        return torch.autograd.grad(made, x)[0]

    graph = make_fx(gradient)(torch.randn(sizes))
    x = torch.randn(sizes)
    assert torch.allclose(graph(x), gradient(x), atol=1e-4, rtol=1e-3)
