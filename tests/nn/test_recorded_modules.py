"""Modules beside torch's: the same repr, and from the same seed the same parameters, to the bit."""

import json
import warnings
from pathlib import Path

import mica
import pytest
from module_cases import OWN, make, state_of

RECORDED = json.loads((Path(__file__).parent.parent / "recorded" / "modules.json").read_text())["modules"]


@pytest.mark.parametrize("expression", OWN)
def test_same_repr_and_state(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make(mica, expression)
    assert repr(module) == RECORDED[expression]["repr"]
    assert state_of(module) == RECORDED[expression]["state"]
