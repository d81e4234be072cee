"""Programs as torch's tutorials write them, on both libraries: one seed, the same numbers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

import tutorial_programs  # noqa: E402

# Numbers differ by the rounding of sums in float32. Where a program computes in another format, it names that.
TOLERANCES = {"float32": 2e-6, "bfloat16": 2.0**-8, "one step of the scale": 0.03}


@pytest.fixture(scope="module")
def told():
    """What every program returned, on Mica and on torch."""
    found = []
    for command in (["-m", "mica", "run"], []):
        command = [sys.executable, "-W", "ignore", *command, str(Path(tutorial_programs.__file__))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


@pytest.mark.parametrize("name", tutorial_programs.PROGRAMS)
def test_same_numbers(told, name):
    ours, theirs = (found[name] for found in told)
    assert not isinstance(ours, dict), ours
    if isinstance(theirs, dict):
        pytest.skip(f"torch refuses on this machine: {theirs['refused']}")
    kind = "float32"
    if isinstance(theirs[0], str):
        (kind, theirs), (_, ours) = theirs, ours
    assert len(ours) == len(theirs) > 10
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCES[kind], atol=TOLERANCES[kind])
