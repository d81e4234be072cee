"""Many operations by dtypes, layouts and sizes, side by side with torch: a profile of what the general paths cost.

`make sweep` runs it. Each library has a process of its own; they take turns on every cell, and a cell in which Mica is
behind is measured again, the better time of each library counting. A figure is torch's time over Mica's.
"""

import argparse
import importlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

SIZES = {"100": (10, 10), "10k": (100, 100), "100k": (250, 400), "4m": (2000, 2000)}
LAYOUTS = ("contiguous", "transposed", "strided")
FLOATS = ("float32", "float64", "bfloat16")
ALL = (*FLOATS, "int64", "uint8")
WIDE = ("float32", "float64", "int64")


def operations(torch):
    """name -> (dtypes, function of one input, or of two of the same shape)."""
    F = torch.nn.functional
    table = {}

    def add(names, dtypes, make):
        for name in names.split():
            table[name] = (dtypes, make(name))

    def method(name):
        return lambda a, b: getattr(a, name)()

    def function(name):
        return lambda a, b: getattr(F, name)(a)

    def binary(name):
        return lambda a, b: getattr(torch, name)(a, b)

    add("exp log sqrt rsqrt sin cos tan tanh sigmoid erf reciprocal log1p expm1 atan sinh", FLOATS, method)
    add("abs neg sign square", ALL, method)
    add("floor round trunc", FLOATS, method)
    add("isnan logical_not", ALL, method)
    add("relu gelu silu softplus leaky_relu hardtanh elu mish", FLOATS, function)
    add("add sub mul maximum minimum eq lt", ALL, binary)
    add("div atan2 pow fmod", FLOATS, binary)
    add("bitwise_and bitwise_or", ("int64", "uint8"), binary)
    add("sum amax amin max argmax prod any all", ALL, method)
    add("mean std norm", FLOATS, method)
    table["logsumexp"] = (FLOATS, lambda a, b: a.logsumexp((0, 1)))
    for dim in (0, 1):
        for name in ("sum", "amax", "argmax"):
            table[f"{name}_dim{dim}"] = (ALL, lambda a, b, n=name, d=dim: getattr(a, n)(d))
        for name in ("mean", "var", "logsumexp", "softmax", "log_softmax"):
            table[f"{name}_dim{dim}"] = (FLOATS, lambda a, b, n=name, d=dim: getattr(a, n)(d))
        for name in ("cumsum", "cumprod"):
            table[f"{name}_dim{dim}"] = (WIDE, lambda a, b, n=name, d=dim: getattr(a, n)(d))
        table[f"stack_dim{-dim}"] = (ALL, lambda a, b, d=dim: torch.stack((a, b), -d))
        table[f"cat_dim{dim}"] = (ALL, lambda a, b, d=dim: torch.cat((a, b), d))
        table[f"flip_dim{dim}"] = (ALL, lambda a, b, d=dim: a.flip(d))
    table.update(
        clone=(ALL, lambda a, b: a.clone(memory_format=torch.contiguous_format)),
        add_scalar=(ALL, lambda a, b: a + 2),
        mul_scalar=(ALL, lambda a, b: a * 3),
        pow_scalar=(FLOATS, lambda a, b: a**2.5),
        clamp=(ALL, lambda a, b: a.clamp(1, 5)),
        where=(ALL, lambda a, b: torch.where(a > b, a, b)),
        lerp=(FLOATS, lambda a, b: torch.lerp(a, b, 0.3)),
        addcmul=(FLOATS, lambda a, b: torch.addcmul(a, a, b)),
        add_row=(ALL, lambda a, b: a + b[0]),
        add_column=(ALL, lambda a, b: a + b[:, :1]),
        to_float=(("float64", "bfloat16", "int64", "uint8"), lambda a, b: a.to(torch.float32)),
        to_bool=(ALL, lambda a, b: a.to(torch.bool)),
        fill=(ALL, lambda a, b: torch.full_like(a, 3)),
        repeat=(ALL, lambda a, b: a.repeat(2, 1)),
        roll=(ALL, lambda a, b: a.roll(3, 1)),
        tril=(ALL, lambda a, b: a.tril()),
        index_select=(ALL, lambda a, b: a.index_select(0, rows_of(torch, a))),
        masked_fill=(ALL, lambda a, b: a.masked_fill(a > b, 0)),
        nonzero=(WIDE, lambda a, b: a.nonzero()),
        sort_dim1=(WIDE, lambda a, b: a.sort(1)),
        topk=(WIDE, lambda a, b: a.reshape(-1).topk(10)),
        unique=(("int64", "uint8"), lambda a, b: a.unique()),
        bincount=(("int64", "uint8"), lambda a, b: a.reshape(-1).bincount()),
        outer=(WIDE, lambda a, b: torch.outer(a[0], b[0])),
        dot=(WIDE, lambda a, b: torch.dot(a.reshape(-1), b.reshape(-1))),
        layer_norm=(FLOATS, lambda a, b: F.layer_norm(a, (a.shape[1],))),
    )
    return table


def rows_of(torch, a, cache={}):  # noqa: B006 - one index tensor for each height
    n = a.shape[0]
    if n not in cache:
        cache[n] = torch.arange(n - 1, -1, -1)
    return cache[n]


def operand(torch, dtype, layout, shape, seed):
    rows, cols = shape
    kind = getattr(torch, dtype)
    stored = {"contiguous": (rows, cols), "transposed": (cols, rows), "strided": (rows, 2 * cols)}[layout]
    torch.manual_seed(seed)
    number = dtype in FLOATS
    whole = (torch.rand(*stored) * 4 + 0.25).to(kind) if number else torch.randint(0, 100, stored, dtype=kind)
    return {"contiguous": whole[:], "transposed": whole.t(), "strided": whole[:, : 2 * cols : 2]}[layout]


def cells(table):
    for name, (dtypes, _) in table.items():
        for dtype in dtypes:
            for layout in LAYOUTS:
                for size in SIZES:
                    yield f"{name}/{dtype}/{layout}/{size}"


def measure(f, budget):
    t = time.perf_counter()
    f()
    f()
    one = (time.perf_counter() - t) / 2
    repeats = max(1, int(50e-6 / max(one, 1e-7)))
    times, end = [], time.perf_counter() + budget
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 100):
        t = time.perf_counter()
        for _ in range(repeats):
            f()
        times.append((time.perf_counter() - t) / repeats)
    return min(times)


def serve(a):
    say, sys.stdout = sys.stdout, sys.stderr
    torch = importlib.import_module(a.serve)
    sys.modules["torch"] = torch
    torch.set_num_threads(a.threads)
    table = operations(torch)
    print(json.dumps(list(cells(table))), file=say, flush=True)
    for line in sys.stdin:
        name, dtype, layout, size = line.strip().split("/")
        try:
            x, y = (operand(torch, dtype, layout, SIZES[size], seed) for seed in (0, 1))
            f = table[name][1]
            answer = measure(lambda f=f, x=x, y=y: f(x, y), a.budget)
        except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, IndexError) as e:
            answer = f"{type(e).__name__}: {e}"[:160]
        print(json.dumps(answer), file=say, flush=True)


class Worker:
    def __init__(self, lib, a):
        command = [sys.executable, "-W", "ignore", __file__, "--serve", lib, "--threads", str(a.threads)]
        self.process = subprocess.Popen(
            [*command, "--budget", str(a.budget)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.names = json.loads(self.process.stdout.readline())

    def time(self, name):
        print(name, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        return json.loads(line) if line else f"the process ended with {self.process.wait()}"


def report(ratios, out):
    lines = [f"{ratio:7.2f}x  {name}" for name, ratio in sorted(ratios.items(), key=lambda item: item[1])]
    total = len(ratios)
    under = {bar: sum(r < bar for r in ratios.values()) for bar in (0.8, 1.0)}
    mean = statistics.geometric_mean(ratios.values())
    print("\n".join(line for line in lines[: under[1.0]]))
    print("\nby operation: cells, mean, worst, under 0.8x, under 1x")
    groups = {}
    for name, ratio in ratios.items():
        groups.setdefault(name.split("/")[0], []).append(ratio)
    for name, values in sorted(groups.items(), key=lambda item: min(item[1])):
        low, behind = (sum(v < bar for v in values) for bar in (0.8, 1.0))
        mean_here = statistics.geometric_mean(values)
        print(f"  {name:18s} {len(values):4d} {mean_here:7.2f}x {min(values):7.2f}x {low:4d} {behind:4d}")
    print(
        f"\n{total} cells, mean {mean:.2f}x; under 0.8x {under[0.8]} ({100 * under[0.8] / total:.1f} %), "
        f"under 1x {under[1.0]} ({100 * under[1.0] / total:.1f} %)"
    )
    if out:
        pathlib.Path(out).write_text("\n".join(lines) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="", help="a regular expression over operation/dtype/layout/size")
    p.add_argument("--budget", type=float, default=0.01, help="seconds for a cell in a turn, at least three calls")
    p.add_argument("--turns", type=int, default=4, help="the most turns of a cell in which Mica is behind")
    p.add_argument("--out", help="a file for all cells, the slowest first")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.serve:
        return serve(a)
    mine, peer = Worker("mica", a), Worker("torch", a)
    ratios = {}
    for name in peer.names:
        if a.only and not re.search(a.only, name):
            continue
        best = [float("inf")] * 2
        for _ in range(a.turns):
            times = [mine.time(name), peer.time(name)]
            if not all(isinstance(t, float) for t in times):
                if isinstance(times[1], float):
                    print(f"{name}: {times[0]}", flush=True)
                best = None
                break
            best = [min(t, b) for t, b in zip(times, best, strict=True)]
            if best[1] > 1.05 * best[0]:
                break
        if best:
            ratios[name] = best[1] / best[0]
    report(ratios, a.out)


if __name__ == "__main__":
    main()
