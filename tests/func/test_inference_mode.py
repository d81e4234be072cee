"""Transforms compute derivatives within inference mode too, as torch's do."""

import mica as torch


def test_derivatives_in_inference_mode():
    x = torch.tensor([1.0, -2.0, 3.0])
    with torch.inference_mode():
        gradient = torch.func.grad(lambda x: (x**2).sum())(x)
        out, pull = torch.func.vjp(lambda x: (x**2).sum(), x)
        (pulled,) = pull(torch.tensor(1.0))
        made_inside = torch.func.grad(lambda x: (x**2).sum())(torch.ones(2))
        assert torch.is_inference_mode_enabled()
    assert gradient.tolist() == pulled.tolist() == [2, -4, 6] and out.item() == 14 and made_inside.tolist() == [2, 2]
