"""How dual tensors are printed: the value, then the tangent, as torch 2.13 prints them."""

import mica as torch
from mica.autograd import forward_ad


def _text(primal, tangent, function=lambda dual: dual, form=repr):
    with forward_ad.dual_level():
        return form(function(forward_ad.make_dual(primal, tangent)))


def test_values_and_tangents():
    ones, threes = torch.ones(2), torch.full((2,), 3.0)
    assert _text(ones, threes) == "tensor([1., 1.], tangent=tensor([3., 3.]))"
    assert _text(ones, threes, lambda dual: dual * 2) == "tensor([2., 2.], tangent=tensor([6., 6.]))"
    assert _text(ones, threes, form=str) == "tensor([1., 1.], tangent=tensor([3., 3.]))"
    assert _text(torch.tensor(1.0), torch.tensor(3.0)) == "tensor(1., tangent=3.0)"
    assert _text(torch.tensor(1.0), torch.tensor(3.0), form=format) == "1.0"


def test_lines():
    wide = _text(torch.ones(2, dtype=torch.float64), torch.full((2,), 3.0, dtype=torch.float64))
    assert wide == "tensor([1., 1.], dtype=torch.float64,\n       tangent=tensor([3., 3.], dtype=torch.float64))"
    matrix = _text(torch.arange(6.0).view(2, 3), torch.full((2, 3), 3.0))
    assert matrix == (
        "tensor([[0., 1., 2.],\n        [3., 4., 5.]], tangent=tensor([[3., 3., 3.],\n        [3., 3., 3.]]))"
    )


def test_a_history_is_shown_where_the_program_has_one():
    x = torch.ones(2, requires_grad=True)
    text = _text(x, torch.full((2,), 3.0))
    assert text == "tensor([1., 1.], grad_fn=<ViewBackward0>, tangent=tensor([3., 3.]))"


def test_other_tensors_are_printed_as_ever():
    x = torch.ones(2, requires_grad=True)
    with forward_ad.dual_level():
        assert repr(x) == "tensor([1., 1.], requires_grad=True)"
        assert repr(torch.ones(2)) == "tensor([1., 1.])"
    dual_is_gone = x * 2
    assert repr(dual_is_gone) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
