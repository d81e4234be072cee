#!/usr/bin/env python3
"""The memory that a training takes with fully_shard, beside that of one process with all parameters.

    python3 bench/sharded_memory.py --processes 4 --layers 24 --width 2048

A process's figure is the most that it held at once (VmHWM) while it trained three steps with AdamW, less what it held
before the model was made. The model is made without memory and filled piece by piece.
"""

import argparse
import json
import os
import sys

import processes


def held(name):
    """Bytes that this process holds (VmRSS), or has held at most (VmHWM)."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def train(layers, width):
    import mica as torch
    from mica import nn
    from mica.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    together = "RANK" in os.environ
    if together:
        torch.distributed.init_process_group("gloo")
        torch.distributed.barrier()
    (torch.randn(64, 64) @ torch.randn(64, 64)).sum()  # what the engine itself needs
    before = held("VmRSS")
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width, bias=False), nn.Tanh()) for _ in range(layers)))
    if together:
        for block in model:
            fully_shard(block)
        fully_shard(model)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            local = parameter.to_local() if together else parameter
            local.normal_(0, width**-0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(4, width)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if together:
        torch.distributed.barrier()
    print(json.dumps({"bytes": held("VmHWM") - before, "parameters": layers * width * width}), flush=True)


def run(ranks, layers, width):
    """What each process has held."""
    command = [sys.executable, __file__, "--child", "--layers", str(layers), "--width", str(width)]
    return [json.loads(each.splitlines()[-1]) for each in processes.outputs(command, ranks if ranks > 1 else 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return train(given.layers, given.width)
    (alone,) = run(1, given.layers, given.width)
    together = run(given.processes, given.layers, given.width)
    most = max(each["bytes"] for each in together)
    print(f"{alone['parameters'] / 1e6:.1f} M parameters, float32, AdamW")
    print(f"one process: {alone['bytes'] / 2**20:.0f} MB")
    print(
        f"{given.processes} processes: at most {most / 2**20:.0f} MB each, {100 * most / alone['bytes']:.1f} % of one"
    )
    return None


if __name__ == "__main__":
    main()
