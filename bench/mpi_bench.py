"""all_reduce of the backend 'mpi' beside mpi4py's Allreduce: the same processes, library and sizes, by turns.

    mpirun -np 2 python bench/mpi_bench.py [--rounds 2]

It needs mpi4py. The best time of each size counts, of both on rank 0. One thread per process.
"""

import argparse
import os
import time

import mica
import mica.distributed as dist
import numpy
from mica.distributed import mpi

os.environ.setdefault("MPI4PY_LIBMPI", mpi.library() or "")
from mpi4py import MPI

SIZES = [8, 64, 1024, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def best_of(call, calls, rounds, others):
    """The best time of a call for each of several ways to do it, in turns."""
    best = [float("inf")] * len(call)
    for _ in range(rounds):
        for index, each in enumerate(call):
            others()
            start = time.perf_counter()
            for _ in range(calls):
                each()
            best[index] = min(best[index], (time.perf_counter() - start) / calls)
    return best


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=2)
    rounds = options.parse_args().rounds
    mica.set_num_threads(1)
    dist.init_process_group("mpi")
    if dist.get_rank() == 0:
        print(f"{mpi.mpi().version}; {dist.get_world_size()} processes")
        print(f"{'bytes':>10} {'mica':>12} {'mpi4py':>12} {'mica is':>8}")
    for size in SIZES:
        tensor, array = mica.ones(size // 4), numpy.ones(size // 4, dtype=numpy.float32)
        # Short turns, and many of them: on a busy machine some are not interrupted.
        calls = max(1, min(50, (256 << 10) // size))
        turns = rounds * (40 if size <= 1 << 20 else 12 if size <= 16 << 20 else 6)
        ours, theirs = best_of(
            [
                lambda tensor=tensor: dist.all_reduce(tensor),
                lambda array=array: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, array),
            ],
            calls, turns, MPI.COMM_WORLD.Barrier,
        )  # fmt: skip
        if dist.get_rank() == 0:
            print(f"{size:>10} {ours * 1e6:9.1f} us {theirs * 1e6:9.1f} us {theirs / ours:7.2f}x")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
