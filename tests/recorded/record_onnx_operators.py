#!/usr/bin/env python3
"""Records what torch.onnx.ops compute into onnx_operators.json. Run it with a Python that has torch 2.13."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "io"))
import onnx_operator_cases as cases  # noqa: E402

recorded = {name: cases.result(torch, name) for name in cases.CASES}
for results in recorded.values():
    for each in results:
        each["values"] = [round(value, 6) for value in each["values"]]
(HERE / "onnx_operators.json").write_text(json.dumps(recorded) + "\n")
print("recorded with torch", torch.__version__)
