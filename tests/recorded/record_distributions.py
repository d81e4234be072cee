#!/usr/bin/env python3
"""Records what torch's distributions give into distributions.json. Run it with a Python that has torch 2.13."""

import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "distributions"))
import distribution_cases as cases  # noqa: E402

warnings.simplefilter("ignore")


def main():
    recorded = {
        "distributions": {name: cases.distribution_facts(torch, name) for name in cases.DISTRIBUTIONS},
        "gradients": {name: cases.gradient_facts(torch, name) for name in cases.DISTRIBUTIONS},
        "transforms": {name: cases.transform_facts(torch, name) for name in cases.TRANSFORMS},
        "divergences": {},
    }
    for p in cases.PAIRS:
        for q in cases.PAIRS:
            result = cases.divergence_facts(torch, p, q)
            if result != "NotImplementedError":
                recorded["divergences"][f"{p} | {q}"] = result
    sections = []
    for section, entries in recorded.items():
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        sections.append(f"{json.dumps(section)}: {{\n{lines}\n}}")
    (HERE / "distributions.json").write_text("{\n" + ",\n".join(sections) + "\n}\n")
    print({section: len(entries) for section, entries in recorded.items()}, "recorded with torch", torch.__version__)


if __name__ == "__main__":
    main()
