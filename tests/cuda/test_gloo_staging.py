"""CUDA tensors of the backend 'gloo': two processes that share a GPU, and meet in the CPU's memory."""

import os
import subprocess
import sys
from pathlib import Path

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no GPU"),
]

PROGRAM = """
import mica
import mica.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
x = mica.full((1000, 30), rank + 1.0, device="cuda")
dist.all_reduce(x)
assert x.eq(3).all(), x
strided = mica.full((20, 30), rank + 1.0, device="cuda").t()
dist.all_reduce(strided)
assert strided.eq(3).all()
parts = [mica.zeros(5, device="cuda") for _ in range(size)]
dist.all_gather(parts, mica.full((5,), float(rank), device="cuda"))
assert [part[0].item() for part in parts] == [0, 1]
work = dist.broadcast(y := mica.full((7,), float(rank), device="cuda"), 1, async_op=True)
work.wait()
assert y.eq(1).all()
if rank == 0:
    dist.send(mica.arange(4.0, device="cuda"), 1)
else:
    dist.recv(z := mica.zeros(4, device="cuda"), 0)
    assert z.tolist() == [0, 1, 2, 3]
dist.destroy_process_group()
"""


def test_two_processes_that_share_a_gpu(tmp_path):
    variables = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000), "WORLD_SIZE": "2",
        "PYTHONPATH": str(Path(mica.__file__).parent.parent.absolute()),
    }  # fmt: skip
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env={**variables, "RANK": str(rank)}, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        ended = [each.communicate(timeout=100)[1].decode() for each in started]
    finally:
        for each in started:
            each.kill()
    assert [each.returncode for each in started] == [0, 0], ended
