"""Batches come in torch's order from the same seed, and leave the random stream where torch leaves it."""

import json
from pathlib import Path

import mica
import mica.utils.data
import pytest
from loader_cases import cases, run
from mica.utils.data import DistributedSampler, random_split

RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "data.json").read_text())


@pytest.mark.parametrize("name", cases(mica))
def test_loader(name):
    assert json.loads(json.dumps(run(mica, name))) == RECORDED["loaders"][name]


def test_samplers():
    recorded = RECORDED["samplers"]
    assert [list(DistributedSampler(range(11), 3, rank, seed=4)) for rank in range(3)] == recorded["distributed"]
    dropped = [list(DistributedSampler(range(11), 3, rank, shuffle=False, drop_last=True)) for rank in range(3)]
    assert dropped == recorded["distributed, dropped"]
    assert [list(DistributedSampler(range(2), 5, rank)) for rank in range(5)] == recorded["distributed, few"]
    parts = random_split(range(10), [0.3, 0.3, 0.4], mica.Generator().manual_seed(1))
    assert [list(part.indices) for part in parts] == recorded["split"]
