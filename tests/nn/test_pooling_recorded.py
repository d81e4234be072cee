"""Pooling and resampling layers beside torch's recorded outputs and gradients."""

import json
from pathlib import Path

import mica
import pytest
from layer_cases import run
from pooling_cases import POOLS, RESIZES

RECORDED = json.loads((Path(__file__).parent.parent / "recorded" / "pooling.json").read_text())


def close(ours, theirs):
    assert ours[0] == theirs[0]
    assert ours[1] == pytest.approx(theirs[1], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("constructor,inputs", [*POOLS, *RESIZES])
def test_same_as_recorded(constructor, inputs):
    ours, theirs = run(mica, constructor, inputs), RECORDED[f"{constructor}({inputs})"]
    for kind in ("outputs", "gradients"):
        for a, b in zip(ours[kind], theirs[kind], strict=True):
            close(a, b)
