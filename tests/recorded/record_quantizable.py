#!/usr/bin/env python3
"""Records torch's quantized LSTM and attention into quantizable.json, of every engine. Run it with torch 2.13."""

import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "ao"))
import quantizable_cases as cases  # noqa: E402

warnings.simplefilter("ignore")


def main():
    recorded = {}
    for engine in ("qnnpack", "onednn"):
        torch.backends.quantized.engine = engine
        recorded[engine] = {name: cases.run(torch, name) for name in cases.CASES}
    lines = ",\n".join(
        f"{json.dumps(engine)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in entries.items())
        + "\n}"
        for engine, entries in recorded.items()
    )
    (HERE / "quantizable.json").write_text("{\n" + lines + "\n}\n")
    print(len(cases.CASES), "cases recorded with torch", torch.__version__)


if __name__ == "__main__":
    main()
