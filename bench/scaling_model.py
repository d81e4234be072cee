"""How many processes cost: a model fitted to 2 and 4 of them here, checked on 8, and what it says of 64 and 1,024 ranks.

    python bench/scaling_model.py            measures, fits, checks, and prints the tables of docs/distributed.md
    python bench/scaling_model.py --tables   the tables only, from the constants below

A collective costs each rank a time for the call, one for each round with each other rank, one for each byte that it
moves, and in shared memory more for each byte with more ranks, whose outboxes do not fit into the caches together; how
many rounds and bytes there are is known of each engine (docs/distributed.md). What is measured and predicted is the
processor's time of a rank for an all_reduce, since there are fewer processors here than ranks, and other programs.
"""

import argparse
import json
import math
import sys

import mica
import processes

SIZES = [4_000, 400_000, 4_000_000, 16_000_000]
PROGRAM = """
import json, os, resource, sys
import mica, mica.distributed as dist
mica.set_num_threads(1)
if os.environ["MODEL_ENGINE"] == "gloo":
    os.environ["MICA_DISTRIBUTED_HOST"] = os.environ["RANK"]
dist.init_process_group("gloo")
def used():
    times = resource.getrusage(resource.RUSAGE_SELF)
    return times.ru_utime + times.ru_stime
found = {}
for size in json.loads(os.environ["MODEL_SIZES"]):
    x = mica.ones(size // 4)
    calls = max(3, min(100, 40_000_000 // size // dist.get_world_size()))
    dist.all_reduce(x)
    best = float("inf")
    for _ in range(5):
        dist.barrier()
        before = used()
        for _ in range(calls):
            dist.all_reduce(x)
        mean = mica.tensor((used() - before) / calls)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        best = min(best, mean.item())
    found[size] = best
if dist.get_rank() == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""


def measure(engine, ranks):
    """Seconds of a processor that an all_reduce takes each rank, by size."""
    command, sizes = [sys.executable, "-c", PROGRAM], json.dumps(SIZES)
    first, *_ = processes.outputs(command, ranks, limit=300, MODEL_ENGINE=engine, MODEL_SIZES=sizes)
    return {int(size): seconds for size, seconds in json.loads(first).items()}


def shared_costs(ranks, size):
    """Of an all_reduce in shared memory: calls, rounds with other ranks, bytes that a rank reads and writes, these by ranks."""
    if size <= 16 << 10:
        rounds, moved = ranks - 1, size * (ranks + 3)
    elif ranks == 2:
        rounds, moved = -(-size // (256 << 10)), 5 * size
    else:
        rounds, moved = 2 * -(-size // (2 << 20)) * (ranks - 1), size * (2 * (ranks - 1) / ranks + 3 + 1 / ranks)
    return 1, rounds, moved, moved * ranks


def gloo_costs(ranks, size):
    """The same between hosts, where an exchange is a message to and from every other rank."""
    if size <= 1024:
        return 1, ranks - 1, 1536 * 2 * (ranks - 1)
    return 1, 3 * (ranks - 1), 1536 * 2 * (ranks - 1) + 4 * size * (ranks - 1) / ranks + size * (1 + 1 / ranks)


ENGINES = {"shared": shared_costs, "gloo": gloo_costs}


def fit(costs, measured):
    """Seconds per call, per round, per byte..., by least squares of relative errors; none is negative."""
    rows = [(costs(ranks, size), seconds) for ranks, by_size in measured.items() for size, seconds in by_size.items()]
    kept = list(range(len(rows[0][0])))
    while True:
        matrix = mica.tensor([[cost[k] / seconds for k in kept] for cost, seconds in rows], dtype=mica.float64)
        scale = matrix.abs().amax(0)
        solution = mica.linalg.lstsq(matrix / scale, mica.ones(len(rows), 1, dtype=mica.float64)).solution[:, 0] / scale
        if solution.min() >= 0:
            return [solution[kept.index(k)].item() if k in kept else 0.0 for k in range(len(rows[0][0]))]
        kept.pop(int(solution.argmin()))


def predict(costs, constants, ranks, size):
    return sum(amount * price for amount, price in zip(costs(ranks, size), constants, strict=True))


# ---- training: what a step takes on many hosts, each with one rank

# A model of 124 million parameters in float32, in buckets of 25 MB, which a host computes in these seconds.
PARAMETERS, LAYERS, BUCKET = 124e6, 12, 25e6
FORWARD, BACKWARD, OPTIMIZER = 0.10, 0.20, 0.02
# Seconds of a processor for each message of Gloo, as fitted above; seconds on the wire for each message; 100 Gbit/s.
MESSAGE, LATENCY, BYTES_PER_SECOND = 120e-6, 20e-6, 12.5e9


def gloo_exchange(ranks, size):
    """Messages between all pairs, behind each other: one to each rank, and a rank's share of the bytes."""
    return (ranks - 1) * MESSAGE + LATENCY + size * (ranks - 1) / ranks / BYTES_PER_SECOND


def mpi_exchange(ranks, size):
    """As MPI's algorithms do it: a logarithm of steps, and the same bytes."""
    return math.log2(ranks) * LATENCY + size * (ranks - 1) / ranks / BYTES_PER_SECOND


def halves(engine, ranks, size):
    """An all_gather or a reduce_scatter; an all_reduce is two. Gloo's ranks compare their calls in one more exchange."""
    if engine == "mpi":
        return 0.0, mpi_exchange(ranks, size)
    return gloo_exchange(ranks, 1536 * ranks), gloo_exchange(ranks, size)


def ddp_step(engine, ranks):
    """Buckets are reduced one after the other, each from the moment on at which the backward pass has filled it."""
    buckets = max(1, round(PARAMETERS * 4 / BUCKET))
    compare, half = halves(engine, ranks, PARAMETERS * 4 / buckets)
    done = 0.0
    for index in range(buckets):
        ready = FORWARD + BACKWARD * (index + 1) / buckets
        done = max(done, ready) + compare + 2 * half
    return max(done, FORWARD + BACKWARD) + OPTIMIZER


def fsdp_step(engine, ranks):
    """A layer is gathered while the one before it computes, in both passes, and its gradients are scattered."""
    each = sum(halves(engine, ranks, PARAMETERS * 4 / LAYERS))
    network = compute = each
    for _ in range(LAYERS):  # forward: the next layer comes meanwhile
        compute = max(compute, network) + FORWARD / LAYERS
        network += each
    network = max(network, compute)
    for _ in range(LAYERS):  # backward: the next layer is gathered, then the gradients of this one go
        compute = max(compute, network) + BACKWARD / LAYERS
        network = max(network + each, compute) + each
    return max(network, compute) + OPTIMIZER / ranks


def tables():
    alone = FORWARD + BACKWARD + OPTIMIZER
    print("| ranks | DDP, gloo | DDP, mpi | FSDP2, gloo | FSDP2, mpi |\n| --- | --- | --- | --- | --- |")
    for ranks in (2, 8, 64, 1024):
        steps = [step(engine, ranks) for step in (ddp_step, fsdp_step) for engine in ("gloo", "mpi")]
        print(f"| {ranks:,} | " + " | ".join(f"{seconds:.2f} s ({alone / seconds:.0%})" for seconds in steps) + " |")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tables", action="store_true", help="measure nothing")
    if not options.parse_args().tables:
        for engine, costs in ENGINES.items():
            measured = {ranks: measure(engine, ranks) for ranks in (2, 4)}
            call, round_, byte, *more = constants = fit(costs, measured)
            text = f"{engine}: {call * 1e6:.1f} us a call, {round_ * 1e6:.2f} us a round, {byte * 1e9:.4f} ns a byte"
            print(text + (f" and {more[0] * 1e9:.4f} ns more with each rank" if more else ""))
            print(
                "| bytes | 2 ranks | 4 ranks | 8 ranks | 8, predicted | error |\n| --- | --- | --- | --- | --- | --- |"
            )
            seen = measure(engine, 8)
            for size in SIZES:
                expected = predict(costs, constants, 8, size)
                cells = [
                    f"{each * 1e3:.3f} ms" for each in (measured[2][size], measured[4][size], seen[size], expected)
                ]
                print(f"| {size:,} | {' | '.join(cells)} | {expected / seen[size] - 1:+.0%} |")
            print()
    tables()


if __name__ == "__main__":
    main()
