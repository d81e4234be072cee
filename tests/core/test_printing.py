"""repr() of a tensor is torch's, character for character."""

import json
import math
import pathlib

import mica as torch
import pytest
from mica import _tensor_str

RECORDS = json.loads((pathlib.Path(__file__).parents[1] / "recorded" / "printing.json").read_text())
NAMES = {"torch": torch, "NAN": math.nan, "INF": math.inf}


@pytest.fixture(autouse=True)
def default_options():
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.parametrize(("expression", "options", "text"), RECORDS, ids=[r[0][:60] for r in RECORDS])
def test_recorded(expression, options, text):
    tensor = eval(expression, dict(NAMES))
    torch.set_printoptions(**options)
    assert repr(tensor) == text
    assert str(tensor) == text


def test_a_changed_view_of_no_grad_mode_still_prints():
    base = torch.ones(2, requires_grad=True) * 1
    with torch.no_grad():
        view = base[:1]
    base.mul_(2)
    assert repr(view) == "tensor([2.], grad_fn=<Invalid>)"


def test_default_dtype_is_not_named():
    torch.set_default_dtype(torch.float64)
    try:
        assert repr(torch.tensor([1.5], dtype=torch.float64)) == "tensor([1.5000])"
        assert repr(torch.tensor([1.5], dtype=torch.float32)) == "tensor([1.5000], dtype=torch.float32)"
        assert repr(torch.tensor([1j], dtype=torch.complex128)) == "tensor([0.+1.j])"
    finally:
        torch.set_default_dtype(torch.float32)


def test_subclasses_print_their_name():
    class Picture(torch.Tensor):
        pass

    assert repr(torch.ones(2).as_subclass(Picture)) == "Picture([1., 1.])"
    assert repr(torch.ones(2, 2).as_subclass(Picture)) == "Picture([[1., 1.],\n         [1., 1.]])"


def test_only_shown_elements_are_touched():
    # A thousand million elements, of which 36 are shown.
    text = repr(torch.zeros(1).expand(1000, 1000, 1000))
    assert text.count("0.") == 6**3


def test_format_of_single_elements():
    assert f"{torch.tensor(2.0):.2f}" == "2.00"
    assert f"{torch.tensor(7)}" == "7"
    assert f"{torch.ones(2)}" == "tensor([1., 1.])"


def test_options_are_shown_and_restored():
    before = _tensor_str.get_printoptions()
    assert before == {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
    with _tensor_str.printoptions(precision=1, sci_mode=True):
        assert repr(torch.tensor([1.25])) == "tensor([1.2e+00])"
        assert _tensor_str.PRINT_OPTS.precision == 1
    assert _tensor_str.get_printoptions() == before
    torch.set_printoptions(profile="full")
    assert _tensor_str.get_printoptions()["threshold"] == math.inf
    with pytest.raises(ValueError, match="precision must not be negative"):
        torch.set_printoptions(precision=-1)


def test_subclasses_say_what_stands_between_the_parentheses():
    class Named(torch.Tensor):
        def __repr__(self, *, tensor_contents=None):
            return torch.Tensor.__repr__(self.as_subclass(torch.Tensor), tensor_contents="named")

    assert repr(torch.ones(2).as_subclass(Named)) == "tensor(named)"
    assert (
        torch.Tensor.__repr__(torch.ones(2, dtype=torch.int32), tensor_contents="x") == "tensor(x, dtype=torch.int32)"
    )
    with pytest.raises(TypeError):
        torch.Tensor.__repr__(torch.ones(2), "x")
