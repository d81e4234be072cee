#!/usr/bin/env python3
"""Records what torch does with dtypes of blocks, pairs and bits into storage_dtypes.json. Run it with a Python that has torch 2.13."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "core"))
import storage_dtype_cases as cases  # noqa: E402

recorded = {
    "answers": {d: {c: cases.answer(torch, d, c) for c in cases.CASES} for d in cases.DTYPES},
    "refused": {
        d: {c: cases.refusal(torch, d, c) for c in cases.REFUSED} for d in [*cases.DTYPES, *cases.SMALL_INTEGERS]
    },
    "casts": cases.casts(torch),
}
lines = [
    f" {json.dumps(part)}: {{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in of.items()) + "\n }"
    for part, of in recorded.items()
]
(HERE / "storage_dtypes.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
print("recorded with torch", torch.__version__)
