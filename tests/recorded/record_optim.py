"""Records what torch's optimizers and schedules do in optim.json, for tests/optim.

Run with a Python that has torch: `python tests/recorded/record_optim.py`.
"""

import json
import pathlib
import sys
import warnings

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "optim"))
import optim_cases as cases  # noqa: E402

STEPS = (1, 7)


def numbers(tensor):
    """All that a float32 holds, in few characters."""
    return [float(f"{v:.9g}") for v in tensor.double().flatten().tolist()]


def state_of(optimizer):
    """States by name, as flat lists, and the options without the parameters."""
    saved = optimizer.state_dict()
    states = [
        {key: numbers(value) for key, value in saved["state"].get(i, {}).items()}
        for i in range(len(saved["param_groups"][0]["params"]))
    ]
    return states, list(saved["param_groups"][0])


def main():
    warnings.simplefilter("ignore")
    optimizers = {}
    for case in cases.OPTIMIZERS:
        after = []
        for steps in STEPS:
            optimizer, params = cases.run(torch, case, steps)
            states, options = state_of(optimizer)
            after.append([numbers(p.detach()) for p in params])
        optimizers[case] = {"params": after, "state": states, "options": options}
    schedules = {case: cases.rates(torch, case) for case in cases.SCHEDULES}
    text = json.dumps({"steps": STEPS, "optimizers": optimizers, "schedules": schedules}, separators=(",", ":"))
    (HERE / "optim.json").write_text(text.replace("},", "},\n") + "\n")


main()
