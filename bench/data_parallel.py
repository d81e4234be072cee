#!/usr/bin/env python3
"""A small GPT trained by several processes of one thread, beside one process with its share of the batch.

    python3 bench/data_parallel.py --libs mica,torch --processes 2

Each library runs alone and together in turns; a figure is the best of the turns. "kept" is the speed of one process of
several, as a part of that of one process which trains by itself with the same number of rows.
"""

import argparse
import importlib
import json
import os
import sys
import time

import processes


def make_gpt(torch, vocab=1024, width=128, heads=4, layers=2):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(1024, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, ids):
            x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return GPT()


def train(lib, steps, rows, length):
    torch = importlib.import_module(lib)
    F = torch.nn.functional
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = make_gpt(torch)
    together = "RANK" in os.environ
    if together:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 1024, (rows, length + 1))

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    if together:
        torch.distributed.destroy_process_group()
    print(json.dumps({"seconds": sorted(times)[len(times) // 2], "tokens": rows * length}))


def run(lib, ranks, args):
    """The seconds of a step; with 0 ranks it is one process without a group."""
    command = [sys.executable, __file__, "--train", lib, "--steps", str(args.steps), "--rows", str(args.rows)]
    found = [json.loads(each.splitlines()[-1]) for each in processes.outputs(command, ranks, OMP_NUM_THREADS="1")]
    return max(answer["seconds"] for answer in found), found[0]["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libs", default="mica,torch")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rows", type=int, default=2, help="of the batch, on each process")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        return train(args.train, args.steps, args.rows, args.length)
    best = {}
    for _ in range(args.turns):
        for lib in args.libs.split(","):
            for ranks in (0, args.processes):
                seconds, tokens = run(lib, ranks, args)
                key = lib, ranks
                best[key] = min(best.get(key, (seconds, tokens)), (seconds, tokens))
    for lib in args.libs.split(","):
        alone, together = best[lib, 0][0], best[lib, args.processes][0]
        speed = args.processes * best[lib, args.processes][1] / together
        print(
            f"{lib:6} alone {alone * 1e3:8.2f} ms   {args.processes} processes {together * 1e3:8.2f} ms a step   "
            f"kept {alone / together:5.2f}   {speed:9.0f} tokens a second"
        )


if __name__ == "__main__":
    main()
