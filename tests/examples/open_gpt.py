"""Opens a checkpoint of the C++ GPT with gpt.py's model and goes on: the last line is the names that fit and a loss."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import gpt
import torch
from text import Text

if __name__ == "__main__":
    checkpoint = torch.load(sys.argv[1])
    context, width, layers = map(int, sys.argv[2:])
    text = Text()
    model = gpt.GPT(len(text.characters), context, width, layers=layers)
    same_order = list(checkpoint["model"]) == list(model.state_dict())
    model.load_state_dict(checkpoint["model"])
    x = text.data[: context + 1]
    loss = torch.nn.functional.cross_entropy(model(x[None, :-1])[0], x[1:])
    loss.backward()
    print("\n" + json.dumps([same_order, loss.item()]))
