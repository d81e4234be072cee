"""The examples on both libraries: one seed, the same losses."""

import numpy as np
import pytest
from example_cases import ON_MICA, ON_TORCH, SMALL_GPT, opened_gpt, run, run_cpp

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

RUNS = {
    "linear_regression": [],
    "mlp": [],
    "digits": ["--images", "3200"],
    "gpt": ["--tell", "0"],
    "lstm": ["--tell", "0"],
}


@pytest.mark.parametrize("name", RUNS)
def test_same_losses(name):
    arguments = ["--steps", "50", *RUNS[name]]
    _, theirs = run(ON_TORCH, name, *arguments)
    _, ours = run(ON_MICA, name, *arguments)
    assert len(ours) == 50
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_same_tale(name):
    arguments = ["--steps", "5", "--batch", "4", "--context", "32", "--width", "32", "--tell", "60"]
    told = [run(python, name, *arguments)[0] for python in (ON_TORCH, ON_MICA)]
    assert told[0][-3:] == told[1][-3:]


def test_torch_opens_the_checkpoint_of_cpp(tmp_path):
    path = tmp_path / "gpt.pt"
    run_cpp("gpt", path, *SMALL_GPT, "--tell", "0")
    theirs, ours = (opened_gpt(python, path) for python in (ON_TORCH, ON_MICA))
    assert theirs[0] and ours[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)
