#!/usr/bin/env python3
"""Records what torch's sparsifiers and their schedules give into pruning.json. Run it with a Python that has torch 2.13."""

import json
import sys
from pathlib import Path

import torch
import torch.ao.pruning

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ao"))
import pruning_cases as cases  # noqa: E402

recorded = {
    "masks": {name: cases.masks(torch, name) for name in cases.SPARSIFIERS},
    "levels": {name: cases.levels(torch, name) for name in ("lambda", "cubic")},
}
(HERE / "pruning.json").write_text(json.dumps(recorded, indent=1) + "\n")
print("recorded with torch", torch.__version__)
