#!/usr/bin/env python3
"""Records torch's configurations of backends, and what models give by them, into backend_configs.json (torch 2.13)."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ao"))
import backend_config_cases as cases  # noqa: E402

recorded = {
    "tables": {name: cases.table(torch, name) for name in cases.BACKENDS},
    "flows": {name: cases.flow(torch, name) for name in cases.FLOWS},
    "trained": {name: cases.flow(torch, name, trained=True) for name in cases.TRAINED},
}
(HERE / "backend_configs.json").write_text(json.dumps(recorded) + "\n")
print("recorded with torch", torch.__version__)
