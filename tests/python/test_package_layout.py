"""How the Python package is laid out: torch's modules at its root."""

from pathlib import Path

import mica

ROOT = Path(mica.__file__).parent
OWN = {"inspect", "lab", "demo", "cli"}  # what Mica has and torch has not
FOLDERS = {"_as_torch", "_functions", "_interop", "_methods", "_operators", "_checkpoints", "_cli", "_generated"}


def test_the_root_shows_torchs_modules():
    lines = (Path(__file__).parent.parent / "recorded" / "torch_names.txt").read_text().splitlines()
    of_torch = {line.partition("\t")[0].rstrip("/").partition(".")[0] for line in lines} | {"library"}
    found = {p.name.removesuffix(".py") for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert (
        found - of_torch - OWN - FOLDERS - {"__init__", "__main__", "__pycache__", "_lab_sources", "lib", "include"}
        == set()
    )
