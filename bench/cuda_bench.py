"""Times the CUDA backend against torch on one GPU: python bench/cuda_bench.py [--torch]. Microseconds, the best of five rounds."""

import argparse
import time

SIZE = 1 << 24


def cases(lib):
    device = {"device": "cuda"}
    big = lib.ones(SIZE, **device)
    other = lib.ones(SIZE, **device)
    matrix = lib.ones(8192, 8192, **device)
    square = lib.ones(4096, 4096, **device)
    half = square.to(lib.bfloat16)
    small = lib.ones(8, **device)
    mask = big > 0
    batch = lib.ones(64, 512, 512, **device).to(lib.bfloat16)
    return {
        "add, 8 elements": lambda: small + small,
        "add, 64 MiB": lambda: big + other,
        "add a number, 64 MiB": lambda: big + 2,
        "exp, 64 MiB": lambda: big.exp(),
        "tanh, 64 MiB": lambda: big.tanh(),
        "where, 64 MiB": lambda: lib.where(mask, big, other),
        "to bfloat16, 64 MiB": lambda: big.to(lib.bfloat16),
        "row added to a matrix, 256 MiB": lambda: matrix + matrix[0],
        "transposed copy, 256 MiB": lambda: matrix.t().contiguous(),
        "sum, 256 MiB": lambda: matrix.sum(),
        "sum of rows, 256 MiB": lambda: matrix.sum(1),
        "sum of columns, 256 MiB": lambda: matrix.sum(0),
        "largest of rows, 256 MiB": lambda: matrix.amax(1),
        "matmul 4096, float32": lambda: square @ square,
        "matmul 4096, bfloat16": lambda: half @ half,
        "matmul 64 x 512, bfloat16": lambda: batch @ batch,
        "random normal, 64 MiB": lambda: big.normal_(),
    }


def best(lib, call, count):
    times = []
    for _ in range(5):
        lib.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        lib.cuda.synchronize()
        times.append((time.perf_counter() - start) / count)
    return min(times) * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", action="store_true", help="time torch as well")
    arguments = parser.parse_args()
    if arguments.torch:
        import torch
    import mica

    libraries = {"mica": mica, "torch": torch} if arguments.torch else {"mica": mica}
    results = {name: {c: best(lib, f, 50) for c, f in cases(lib).items()} for name, lib in libraries.items()}
    print(f"{'':34}" + "".join(f"{name:>12}" for name in results) + ("       ratio" if len(results) > 1 else ""))
    for case in results["mica"]:
        times = [r[case] for r in results.values()]
        ratio = f"{times[1] / times[0]:11.2f}x" if len(times) > 1 else ""
        print(f"{case:34}" + "".join(f"{t:12.1f}" for t in times) + ratio)


if __name__ == "__main__":
    main()
