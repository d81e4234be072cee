"""A character-level language model with an LSTM, on the same tales as gpt.py."""

import argparse

import torch
from progress import Progress
from text import Text, choose
from torch import nn
from torch.nn import functional as F


class Teller(nn.Module):
    def __init__(self, characters, width, layers):
        super().__init__()
        self.character = nn.Embedding(characters, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, numbers, state=None):
        out, state = self.lstm(self.character(numbers), state)
        return self.head(out), state

    @torch.no_grad()
    def tell(self, start, length, temperature=0.8):
        numbers, state, last = [start], None, start.view(1, -1)
        for _ in range(length):
            logits, state = self(last, state)
            last = choose(logits[:, -1], temperature)
            numbers.append(last.view(1))
        return torch.cat(numbers)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tell", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    text = Text()
    model = Teller(len(text.characters), options.width, options.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    progress = Progress(options.steps, "token", options.batch * options.context)
    for step in range(1, options.steps + 1):
        x, y = text.batch(options.batch, options.context)
        logits, _ = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress.update(step, loss.item())
    progress.close()
    if options.tell:
        print("\n" + text.decode(model.eval().tell(text.encode("Once "), options.tell)))
    return progress.losses


if __name__ == "__main__":
    main()
