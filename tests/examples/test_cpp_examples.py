"""The C++ examples beside the Python ones: one seed, the same losses, and checkpoints that open there."""

import pytest
from example_cases import ON_MICA, SMALL_GPT, opened_gpt, run, run_cpp


def test_gpt_has_the_losses_of_python(tmp_path):
    ours = run_cpp("gpt", tmp_path / "gpt.pt", *SMALL_GPT, "--tell", "0")
    _, theirs = run(ON_MICA, "gpt", *SMALL_GPT, "--tell", "0")
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_convnet_has_the_losses_of_python(tmp_path):
    arguments = ["--steps", "12", "--images", "400"]
    ours = run_cpp("convnet", tmp_path / "convnet.pt", *arguments)
    _, theirs = run(ON_MICA, "digits", *arguments)
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_workers_change_nothing(tmp_path):
    arguments = ["--steps", "6", "--images", "400"]
    alone = run_cpp("convnet", tmp_path / "alone.pt", *arguments)
    assert run_cpp("convnet", tmp_path / "workers.pt", *arguments, "--workers", "2") == alone


def test_python_opens_the_checkpoint(tmp_path):
    losses = run_cpp("gpt", tmp_path / "gpt.pt", *SMALL_GPT, "--tell", "0")
    same_order, loss = opened_gpt(ON_MICA, tmp_path / "gpt.pt")
    assert same_order
    assert loss < losses[0]
