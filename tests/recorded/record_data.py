#!/usr/bin/env python3
"""Records the batches of tests/data/loader_cases.py into data.json. Run it with a Python that has torch 2.13."""

import json
import sys
from pathlib import Path

import torch
import torch.utils.data

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "data"))
from loader_cases import cases, run  # noqa: E402


def main():
    recorded = {name: run(torch, name) for name in cases(torch)}
    samplers = {
        "distributed": [list(torch.utils.data.DistributedSampler(range(11), 3, rank, seed=4)) for rank in range(3)],
        "distributed, dropped": [
            list(torch.utils.data.DistributedSampler(range(11), 3, rank, shuffle=False, drop_last=True))
            for rank in range(3)
        ],
        "distributed, few": [list(torch.utils.data.DistributedSampler(range(2), 5, rank)) for rank in range(5)],
        "split": [
            list(part.indices)
            for part in torch.utils.data.random_split(range(10), [0.3, 0.3, 0.4], torch.Generator().manual_seed(1))
        ],
    }
    text = json.dumps({"loaders": recorded, "samplers": samplers}, separators=(",", ":"))
    (HERE / "data.json").write_text(text.replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
    main()
