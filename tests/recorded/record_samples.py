#!/usr/bin/env python3
"""Records torch's results for the samples of ops/*.toml into samples.json. Run it with a Python that has torch 2.13."""

import json
import math
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ops"))
from sample_runner import Evaluator, load_samples, tensors_of  # noqa: E402


def plain(value):
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def record(text):
    results = tensors_of(Evaluator(torch).run(text))
    return [[list(t.shape), str(t.dtype), [plain(v) for v in t.detach().reshape(-1).tolist()]] for t in results]


def main():
    recorded, failed = {}, []
    for sample in load_samples():
        try:
            recorded[sample.text] = record(sample.text)
        except Exception as e:
            failed.append(f"{sample.text}: {type(e).__name__}: {str(e).splitlines()[0]}")
    lines = [f"{json.dumps(text)}: {json.dumps(result)}" for text, result in sorted(recorded.items())]
    (HERE / "samples.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(recorded)} recorded with torch {torch.__version__}")
    for line in failed:
        print("torch refuses", line)


if __name__ == "__main__":
    main()
