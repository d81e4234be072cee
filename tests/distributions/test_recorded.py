"""Every distribution, divergence and transform gives what torch gave: samples of one seed, densities, moments, gradients."""

import json
import warnings
from pathlib import Path

import distribution_cases as cases
import mica
import pytest

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "distributions.json").read_text())
# The derivative of a gamma or Dirichlet sample is an approximation in torch, within a thousandth; here it is exact.
ROUGH_IN_TORCH = {
    "Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT", "Wishart",
}  # fmt: skip


def compare(ours, theirs, where, tolerance):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key, value in theirs.items():
            compare(ours[key], value, f"{where}/{key}", tolerance)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        for i, value in enumerate(theirs):
            compare(ours[i], value, f"{where}[{i}]", tolerance)
    elif isinstance(theirs, float):
        assert isinstance(ours, float), where
        assert abs(ours - theirs) <= tolerance * (1 + abs(theirs)), f"{where}: {ours} for {theirs}"
    else:
        assert ours == theirs, where


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", RECORDED["distributions"])
def test_distribution(name):
    compare(cases.distribution_facts(mica, name), RECORDED["distributions"][name], name, 3e-5)


@pytest.mark.parametrize("name", RECORDED["gradients"])
def test_gradients(name):
    ours, theirs = cases.gradient_facts(mica, name), dict(RECORDED["gradients"][name])
    rough = theirs.pop("rsample", None) if name in ROUGH_IN_TORCH else None
    if rough is not None:
        compare(ours.pop("rsample"), rough, f"{name}/rsample", 2e-3)
    compare(ours, theirs, name, 1e-4)


@pytest.mark.parametrize("name", RECORDED["divergences"])
def test_divergence(name):
    compare(cases.divergence_facts(mica, *name.split(" | ")), RECORDED["divergences"][name], name, 3e-5)


PAIRS = [f"{p} | {q}" for p in cases.PAIRS for q in cases.PAIRS]


@pytest.mark.parametrize("name", [pair for pair in PAIRS if pair not in RECORDED["divergences"]])
def test_no_divergence(name):
    assert cases.divergence_facts(mica, *name.split(" | ")) == "NotImplementedError"


@pytest.mark.parametrize("name", RECORDED["transforms"])
def test_transform(name):
    compare(cases.transform_facts(mica, name), RECORDED["transforms"][name], name, 1e-5)
