"""A character-level GPT: trains on the tales, then tells some of its own."""

import argparse
import time

import torch
from progress import Progress
from text import Text, choose
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention over the characters so far, then a small network for each position."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.think(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, characters, context, width=128, heads=4, layers=3):
        super().__init__()
        self.context = context
        self.character = nn.Embedding(characters, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, numbers):
        x = self.character(numbers) + self.place(torch.arange(numbers.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def tell(self, start, length, temperature=0.8):
        numbers = start.view(1, -1)
        for _ in range(length):
            logits = self(numbers[:, -self.context :])[:, -1]
            numbers = torch.cat([numbers, choose(logits, temperature)], 1)
        return numbers[0]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--minutes", type=float, help="stop after this long, whatever the number of steps")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=96)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--tell", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    text = Text()
    model = GPT(len(text.characters), options.context, options.width, layers=options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(text.data):,} characters of {len(text.characters)} kinds")

    progress = Progress(options.steps, "token", options.batch * options.context)
    limit = 60 * options.minutes if options.minutes else None
    began = time.perf_counter()
    for step in range(1, options.steps + 1):
        fraction = step / options.steps
        if limit:
            fraction = max(fraction, (time.perf_counter() - began) / limit)
        optimizer.param_groups[0]["lr"] = 2e-3 * max(1 - fraction, 0.05) * min(1, step / 20)
        x, y = text.batch(options.batch, options.context)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress.update(step, loss.item(), fraction)
        if fraction >= 1:
            break
    progress.close()
    speed = step * options.batch * options.context / progress.seconds
    print(f"{step} steps in {progress.seconds:.1f} s: {speed:,.0f} tokens a second")
    if options.tell:
        print("\n" + text.decode(model.eval().tell(text.encode("Once "), options.tell)))
    return progress.losses


if __name__ == "__main__":
    main()
