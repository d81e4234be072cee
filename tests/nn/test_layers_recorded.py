"""Losses, normalisations, distances and bags: torch's recorded outputs, gradients and buffers."""

import json
import math
from pathlib import Path

import mica
import pytest
from layer_cases import LOSSES, NORMS, OTHERS, run

RECORDED = json.loads((Path(__file__).parent.parent / "recorded" / "layers.json").read_text())


def assert_close(ours, theirs):
    assert (ours is None) == (theirs is None)
    if ours is None:
        return
    assert ours[0] == theirs[0]
    for x, y in zip(ours[1], theirs[1], strict=True):
        assert x == y or (x != x and y != y) or math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-11), (x, y)


@pytest.mark.parametrize("constructor,inputs", [*LOSSES, *NORMS, *OTHERS])
def test_same_as_recorded(constructor, inputs):
    ours, theirs = run(mica, constructor, inputs), RECORDED[f"{constructor}({inputs})"]
    for kind in ("outputs", "gradients"):
        assert len(ours[kind]) == len(theirs[kind])
        for a, b in zip(ours[kind], theirs[kind], strict=True):
            assert_close(a, b)
    assert ours["buffers"].keys() == theirs["buffers"].keys()
    for name, value in ours["buffers"].items():
        assert_close(value, theirs["buffers"][name])
