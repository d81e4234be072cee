"""Programs as torch's tutorials write them, small: each returns numbers. tutorial_programs.py NAME... prints them as JSON."""

import json
import sys

import numpy as np
import torch
import tutorial_features  # noqa: F401
import tutorial_models  # noqa: F401
from tutorial_registry import PROGRAMS

if __name__ == "__main__":
    torch.set_num_threads(1)
    told = {}
    for name in sys.argv[1:] or PROGRAMS:
        torch.manual_seed(0)
        np.random.seed(0)
        try:
            told[name] = PROGRAMS[name]()
        except RuntimeError as error:  # the judge may not know the processor: the others are compared all the same
            told[name] = {"refused": str(error)}
    print("\n" + json.dumps(told))
