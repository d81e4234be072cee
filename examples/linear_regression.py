"""Fits a line to y = 2x + 1 + noise."""

import argparse

import torch
from progress import Progress
from torch import nn


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    x = torch.linspace(-1, 1, 200).unsqueeze(1)
    y = 2 * x + 1 + 0.1 * torch.randn_like(x)

    model = nn.Linear(1, 1)
    loss_function = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    progress = Progress(options.steps)
    for step in range(options.steps):
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        progress.update(step + 1, loss.item())
    progress.close()
    print(f"y = {model.weight.item():.3f} x + {model.bias.item():.3f}   (made with y = 2 x + 1)")
    return progress.losses


if __name__ == "__main__":
    main()
