"""Records folders that torch.distributed.checkpoint writes: by one process, and by two that share tensors.

usage: python tests/recorded/record_distributed_checkpoints.py   (any Python with torch 2.13)
"""

import os
import shutil
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

FOLDER = Path(__file__).parent / "files" / "checkpoints"


def state_of_one():
    return {
        "model": {"weight": torch.arange(12.0).reshape(3, 4), "count": torch.tensor(7), "none": torch.empty(0, 3)},
        "optim": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": [0]}]},
        "list": [torch.ones(2, dtype=torch.bfloat16), {"flag": torch.tensor([True, False])}],
        "words": ["a", "b"],
        "step": 3,
    }  # fmt: skip


def save_of_two(rank, folder):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29611"}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(35.0).reshape(5, 7)
    dcp.save(
        {
            "rows": distribute_tensor(whole, mesh, [Shard(0)]),  # 3 and 2 rows
            "columns": distribute_tensor(whole + 100, mesh, [Shard(1)]),  # 4 and 3 columns
            "same": distribute_tensor(whole + 200, mesh, [Replicate()]),
            "plain": whole + 300,
            "step": 11,
        },
        checkpoint_id=folder,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.chdir(Path(__file__).parent / "files")  # so that the path in the metadata says nothing of this machine
    dcp.save(state_of_one(), checkpoint_id="checkpoints/of_one")
    torch.multiprocessing.spawn(save_of_two, ("checkpoints/of_two",), nprocs=2)
