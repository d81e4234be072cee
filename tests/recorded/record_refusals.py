#!/usr/bin/env python3
"""Records which samples of ops/*.toml torch refuses in which floating dtype, into refused_dtypes.json.

Run it with a Python that has torch 2.13 and Mica. What torch refuses and Mica computes is listed apart, so that a test
knows of every sample what has to happen.
"""

import json
import sys
import warnings
from pathlib import Path

import mica
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ops"))
from sample_runner import Evaluator, load_samples  # noqa: E402


def refuses(module, text, dtype):
    try:
        Evaluator(module, dtype=dtype).run(text)
    except RuntimeError:  # NotImplementedError among them
        return True
    return False


def main():
    warnings.simplefilter("ignore")
    recorded = {}
    for dtype in ("float32", "bfloat16", "float16"):
        by_torch = [sample.text for sample in load_samples() if refuses(torch, sample.text, dtype)]
        by_both = [text for text in by_torch if refuses(mica, text, dtype)]
        recorded[dtype] = {"refused": sorted(by_both), "refused by torch alone": sorted(set(by_torch) - set(by_both))}
        print(dtype, *(f"{kind}: {len(texts)}" for kind, texts in recorded[dtype].items()))
    (HERE / "refused_dtypes.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
