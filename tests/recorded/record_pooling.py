"""Records torch 2.13's outputs and gradients of pooling and resampling layers. Run with torch."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "nn"), str(HERE.parent / "ops")]
from layer_cases import run  # noqa: E402
from pooling_cases import POOLS, RESIZES  # noqa: E402


def main():
    cases = {f"{c}({i})": run(torch, c, i) for c, i in [*POOLS, *RESIZES]}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in cases.items()]
    (HERE / "pooling.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
