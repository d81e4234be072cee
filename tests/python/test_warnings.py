"""What Mica warns of is what torch warns of, in its words, and as often."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

RECORDED = pathlib.Path(__file__).parents[1] / "recorded"

# Warnings in which torch speaks of itself, and which are not true of Mica: how finished or how fast a part of it is.
ABOUT_TORCH = (
    "Sparse invariant checks are implicitly disabled",  # Mica's are made always
    "Sparse CSR tensor support is in beta state",
    "The PyTorch API of nested tensors is in prototype stage",
    "ComplexHalf support is experimental",
    "index_reduce() is in beta",
    "torch.quantize_per_tensor, torch.quantize_per_channel and other quantized tensor creation functions",
    "Creating a tensor from a list of numpy.ndarrays is extremely slow",
    "torch.searchsorted(): ",  # that inputs are copied
)


@pytest.fixture(scope="module")
def given():
    """The warnings of every case, each run in a child of one fresh process that sees no GPU, as torch's did."""
    program = "import runpy, sys; sys.argv[1:] = ['mica']; runpy.run_path(%r, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program % str(RECORDED / "warning_cases.py")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_warnings_are_torchs(given):
    recorded = json.loads((RECORDED / "warnings.json").read_text())
    assert set(recorded) <= set(given) and len(given) > 300
    different = {}
    for name, (first, again) in given.items():
        said = recorded.get(name, {"first": [], "again": []})
        wanted = [[w for w in said[when] if not w[1].startswith(ABOUT_TORCH)] for when in ("first", "again")]
        if [first, again] != wanted:
            different[name] = {"mica": [first, again], "torch": wanted}
    assert different == {}


def test_the_list_of_what_is_said_of_torch_alone_is_needed(given):
    recorded = json.loads((RECORDED / "warnings.json").read_text())
    for text in ABOUT_TORCH:
        cases = [name for name, said in recorded.items() if any(w[1].startswith(text) for w in said["first"])]
        assert cases
        assert not any(w[1].startswith(text) for name in cases for w in given[name][0])
