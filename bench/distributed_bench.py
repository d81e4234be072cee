"""all_reduce of several processes of this machine, beside torch's gloo in the same run.

    python bench/distributed_bench.py --torch-python .venv-torch/bin/python [--ranks 2] [--rounds 3]

Both libraries run one after the other, `rounds` times; the best time of each size counts. One thread per process.
"""

import argparse
import json
import sys

import processes

SIZES = {"10 floats": (10, 500), "1 MB": (250_000, 40), "40 MB": (10_000_000, 4)}

PROGRAM = """
import time
began = time.time()
import json, os, sys
torch = __import__(os.environ["BENCH_LIBRARY"])
import importlib
dist = importlib.import_module(os.environ["BENCH_LIBRARY"] + ".distributed")
torch.set_num_threads(1)
dist.init_process_group("gloo")
times = {"init, import included": time.time() - began}
for name, (count, calls) in json.loads(os.environ["BENCH_SIZES"]).items():
    x = torch.ones(count)
    for _ in range(3):
        dist.all_reduce(x)
    best = 1e9
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(x)
        best = min(best, (time.perf_counter() - start) / calls)
    times[name] = best
if dist.get_rank() == 0:
    print(json.dumps(times))
dist.destroy_process_group()
"""


def measure(python, library, ranks):
    sizes = json.dumps(SIZES)
    first, *_ = processes.outputs(
        [python, "-c", PROGRAM], ranks, limit=300, BENCH_LIBRARY=library, BENCH_SIZES=sizes, OMP_NUM_THREADS="1"
    )
    return json.loads(first)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--torch-python", help="an interpreter that has torch; without it only Mica is measured")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    libraries = [("mica", sys.executable)] + ([("torch", options.torch_python)] if options.torch_python else [])
    best = {}
    for _ in range(options.rounds):
        for library, python in libraries:
            for name, seconds in measure(python, library, options.ranks).items():
                best[library, name] = min(best.get((library, name), 1e9), seconds)
    print(f"{'all_reduce, ' + str(options.ranks) + ' processes':28} {'mica':>12} {'torch':>12} {'ratio':>7}")
    for name in [*SIZES, "init, import included"]:
        ours, theirs = best["mica", name], best.get(("torch", name))
        beside = f"{theirs * 1e6:10.1f} us {theirs / ours:6.1f}x" if theirs else ""
        print(f"{name:28} {ours * 1e6:10.1f} us {beside}")


if __name__ == "__main__":
    main()
