"""A training that is killed at random moments and goes on: runs it under `mica launch`, kills ranks, compares the losses."""

import json
import os
import random
import signal
import time
from pathlib import Path

from launching import Program

STEPS, EVERY = 40, 4

TRAINING = f"""
import os, warnings
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []


def state():
    model_state, optim_state = get_state_dict(model, optimizer)
    return {{"model": model_state, "optim": optim_state, "losses": list(losses)}}


if os.path.exists("latest"):
    saved = state()
    dcp.load(saved, checkpoint_id=open("latest").read())
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optim"])
    losses = saved["losses"]

for step in range(len(losses), {STEPS}):
    data = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(8, 6, generator=data)
    loss = (model(x) - x.sin().sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    losses.append(total.item() / ranks)
    if (step + 1) % {EVERY} == 0:
        folder = f"checkpoint_{{step + 1}}_{{os.environ['TORCHELASTIC_RESTART_COUNT']}}"
        dcp.save(state(), storage_writer=dcp.FileSystemWriter(folder, sync_files=False))
        if rank == 0:
            with open("latest.draft", "w") as file:
                file.write(folder)
            os.replace("latest.draft", "latest")
    time.sleep(float(os.environ.get("PAUSE", 0)))

if rank == 0:
    with open("losses.json", "w") as file:
        json.dump(losses, file)
dist.barrier()
dist.destroy_process_group()
"""


def train(folder, kills=(), ranks=2, restarts=3, pause=0.01, seconds=120):
    """The losses of a training in which at each moment of `kills`, in seconds, a random rank of those that run is killed.

    Returns them, and how many ranks were killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = Program(folder, TRAINING)
    process = program.start(f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", PAUSE=str(pause))
    killed = 0
    try:
        program.wait_for(1)
        start = time.monotonic()
        for moment in sorted(kills):
            time.sleep(max(start + moment - time.monotonic(), 0))
            alive = [pid for pid in program.pids() if Path(f"/proc/{pid}").exists()]
            if process.poll() is None and alive:
                victim = random.choice(alive)
                try:
                    os.kill(victim, signal.SIGKILL)
                    killed += 1
                except ProcessLookupError:
                    pass
        _, errors = process.communicate(timeout=seconds)
    except BaseException as error:
        process.kill()
        error.add_note("".join(process.communicate()))
        raise
    assert process.returncode == 0, errors
    assert program.left_behind() == [], "processes are left behind"
    return json.loads((folder / "losses.json").read_text()), killed
