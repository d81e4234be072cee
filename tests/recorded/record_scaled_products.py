#!/usr/bin/env python3
"""Records what torch gives for products of 8-bit floats into scaled_products.json. Run it with a Python that has torch 2.13."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ops"))
import scaled_product_cases as cases  # noqa: E402

recorded = {
    "results": {name: cases.result(torch, case) for name, case in cases.CASES.items()},
    "refused": {name: cases.refusal(torch, case) for name, case in cases.REFUSED.items()},
}
lines = [
    f" {json.dumps(part)}: {{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in of.items()) + "\n }"
    for part, of in recorded.items()
]
(HERE / "scaled_products.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
print("recorded with torch", torch.__version__)
