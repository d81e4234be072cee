#!/usr/bin/env python3
"""Records what torch's reference layers compute into reference_layers.json. Run it with a Python that has torch 2.13."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ao"))
import reference_cases as cases  # noqa: E402

recorded = {
    "layers": {f"{n} {w}": cases.layer_result(torch, n, w) for n in cases.LAYERS for w in cases.WAYS},
    "recurrent": {name: cases.recurrent_result(torch, name) for name in cases.RECURRENT},
}
(HERE / "reference_layers.json").write_text(json.dumps(recorded) + "\n")
print("recorded with torch", torch.__version__)
