"""Records torch 2.13's outputs, gradients and buffers of losses, normalisations, distances and bags. Run with torch."""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "nn"), str(HERE.parent / "ops")]
from layer_cases import LOSSES, NORMS, OTHERS, run  # noqa: E402


def main():
    cases = {f"{c}({i})": run(torch, c, i) for c, i in [*LOSSES, *NORMS, *OTHERS]}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in cases.items()]
    (HERE / "layers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
