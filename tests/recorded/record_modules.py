"""Records what torch 2.13 says of modules: their reprs, and their states when made from a seed. Run with torch.

Torch's normal numbers differ in their last bits between processors. On x86-64 everything is recorded; run on another
machine afterwards, it adds under "init_on" the initial values that differ there.
"""

import json
import platform
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "nn"))
from module_cases import OWN, make, state_of  # noqa: E402

warnings.simplefilter("ignore")

INITIAL = {
    "uniform_": ["(3, 5), -1, 2", "(40,)"],
    "normal_": ["(3, 5), 1, 2", "(40,)"],
    "trunc_normal_": ["(4, 6)", "(40,), 0.5, 2.0, 0.0, 1.0", "(12,), 0.0, 1.0, 3.0, 4.0"],
    "constant_": ["(2, 2), 0.3"],
    "ones_": ["(2, 2)"],
    "zeros_": ["(2, 2)"],
    "eye_": ["(2, 3)", "(3, 2)"],
    "dirac_": ["(3, 2, 3)", "(4, 2, 3, 3), 2", "(2, 2, 1, 2, 3)"],
    "xavier_uniform_": ["(3, 5)", "(2, 3, 2, 2), 1.4"],
    "xavier_normal_": ["(3, 5)", "(2, 3, 2, 2), 1.4"],
    "kaiming_uniform_": ["(3, 5)", "(2, 3, 2), 0.2, 'fan_out'", "(3, 5), 0, 'FAN_IN', 'tanh'"],
    "kaiming_normal_": ["(3, 5)", "(2, 3, 2), 0.2, 'fan_out', 'relu'"],
    "orthogonal_": ["(3, 3)", "(4, 2)", "(2, 4)", "(2, 3, 2), 1.5"],
    "sparse_": ["(6, 3), 0.4"],
}


def initial(name, text):
    shape, *arguments = eval(f"({text},)" if text.startswith("(") else text)
    torch.manual_seed(3)
    filled = getattr(torch.nn.init, name)(torch.empty(shape), *arguments)
    return filled.reshape(-1).tolist()


def main():
    inits = {f"{name}: {text}": initial(name, text) for name, texts in INITIAL.items() for text in texts}
    path = HERE / "modules.json"
    if platform.machine() != "x86_64":
        recorded = json.loads(path.read_text())
        own = {case: values for case, values in inits.items() if values != recorded["init"][case]}
        recorded.setdefault("init_on", {})[platform.machine()] = own
        path.write_text(json.dumps(recorded, indent=0) + "\n")
        return
    modules = {}
    for expression in OWN:
        module = make(torch, expression)
        modules[expression] = {"repr": repr(module), "state": state_of(module)}
    path.write_text(json.dumps({"torch": torch.__version__, "modules": modules, "init": inits}, indent=0) + "\n")


if __name__ == "__main__":
    main()
