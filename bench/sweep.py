"""Many operations by dtypes, layouts and sizes, side by side with torch: a profile of what the general paths cost.

`make sweep` runs it. Each library has a process of its own; they take turns on every cell, and a cell in which Mica is
behind is measured again, the better time of each library counting. A figure is torch's time over Mica's.
`--dtypes` has the other dtypes of the operations, `--device cuda` is for a GPU.
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
CUDA_SIZES = {"10k": (100, 100), "1m": (1000, 1000), "16m": (4096, 4096)}
LAYOUTS = ("contiguous", "transposed", "strided")
USUAL = ("float32", "float64", "bfloat16", "int64", "uint8")  # what is measured unless --dtypes says otherwise
FLOATS = ("float32", "float64", "bfloat16", "float16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int64", "uint8", "int32", "int16", "int8")
NUMBERS = (*FLOATS, *COMPLEX)
REAL = (*FLOATS, *INTEGERS)
ALL = (*REAL, *COMPLEX)
WIDE = ("float32", "float64", "int64", "int32", *COMPLEX)
SORTED = ("float32", "float64", "int64", "int32")


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

    add("exp log sqrt rsqrt sin cos tan tanh sigmoid reciprocal log1p expm1 atan sinh", NUMBERS, method)
    add("asin acos cosh angle sgn", NUMBERS, method)
    add("erf", FLOATS, method)
    add("abs neg square", ALL, method)
    add("sign", REAL, method)
    add("conj_physical", COMPLEX, method)
    add("floor round trunc", FLOATS, method)
    add("isnan logical_not", ALL, method)
    add("silu", NUMBERS, function)
    add("relu gelu softplus leaky_relu hardtanh elu mish", FLOATS, function)
    add("add sub mul eq", ALL, binary)
    add("maximum minimum lt", REAL, binary)
    add("div pow", NUMBERS, binary)
    add("atan2 fmod", FLOATS, binary)
    add("bitwise_and bitwise_or", INTEGERS, binary)
    add("sum prod any all", ALL, method)
    add("amax amin max argmax", REAL, method)
    add("mean std norm", NUMBERS, method)
    table["logsumexp"] = (FLOATS, lambda a, b: a.logsumexp((0, 1)))
    for dim in (0, 1):
        for name, dtypes in (("sum", ALL), ("amax", REAL), ("argmax", REAL), ("prod", ALL), ("mean", NUMBERS)):
            table[f"{name}_dim{dim}"] = (dtypes, lambda a, b, n=name, d=dim: getattr(a, n)(d))
        for name in ("var", "logsumexp", "softmax", "log_softmax"):
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
        pow_scalar=(NUMBERS, lambda a, b: a**2.5),
        clamp=(REAL, lambda a, b: a.clamp(1, 5)),
        where=(ALL, lambda a, b: torch.where(a != b, a, b)),
        lerp=(NUMBERS, lambda a, b: torch.lerp(a, b, 0.3)),
        addcmul=(NUMBERS, lambda a, b: torch.addcmul(a, a, b)),
        addcdiv=(NUMBERS, lambda a, b: torch.addcdiv(a, a, b)),
        add_row=(ALL, lambda a, b: a + b[0]),
        add_column=(ALL, lambda a, b: a + b[:, :1]),
        to_float=(tuple(d for d in REAL if d != "float32"), lambda a, b: a.to(torch.float32)),
        to_bool=(ALL, lambda a, b: a.to(torch.bool)),
        fill=(ALL, lambda a, b: torch.full_like(a, 3)),
        repeat=(ALL, lambda a, b: a.repeat(2, 1)),
        roll=(ALL, lambda a, b: a.roll(3, 1)),
        tril=(ALL, lambda a, b: a.tril()),
        index_select=(ALL, lambda a, b: a.index_select(0, rows_of(torch, a))),
        masked_fill=(ALL, lambda a, b: a.masked_fill(a != b, 0)),
        nonzero=(WIDE, lambda a, b: a.nonzero()),
        sort_dim1=(SORTED, lambda a, b: a.sort(1)),
        topk=(SORTED, lambda a, b: a.reshape(-1).topk(10)),
        unique=(INTEGERS, lambda a, b: a.unique()),
        bincount=(INTEGERS, lambda a, b: a.reshape(-1).bincount()),
        outer=(WIDE, lambda a, b: torch.outer(a[0], b[0])),
        dot=(WIDE, lambda a, b: torch.dot(a.reshape(-1), b.reshape(-1))),
        vdot=(COMPLEX, lambda a, b: torch.vdot(a.reshape(-1), b.reshape(-1))),
        layer_norm=(FLOATS, lambda a, b: F.layer_norm(a, (a.shape[1],))),
    )
    return table


def rows_of(torch, a, cache={}):  # noqa: B006 - one index tensor for each height
    n = a.shape[0]
    if n not in cache:
        cache[n] = torch.arange(n - 1, -1, -1, device=a.device)
    return cache[n]


def operand(torch, dtype, layout, shape, seed, device, cache={}):  # noqa: B006 - operands of all operations
    key = (dtype, layout, shape, seed)
    if key not in cache:
        cache[key] = new_operand(torch, dtype, layout, shape, seed, device)
    return cache[key]


def new_operand(torch, dtype, layout, shape, seed, device):
    rows, cols = shape
    kind = getattr(torch, dtype)
    stored = {"contiguous": (rows, cols), "transposed": (cols, rows), "strided": (rows, 2 * cols)}[layout]
    torch.manual_seed(seed)
    if dtype in INTEGERS:
        whole = torch.randint(0, 100, stored, dtype=kind, device=device)
    elif dtype in FLOATS:
        whole = (torch.rand(*stored, device=device) * 4 + 0.25).to(kind)
    else:
        whole = torch.randn(*stored, dtype=kind, device=device)
    return {"contiguous": whole[:], "transposed": whole.t(), "strided": whole[:, : 2 * cols : 2]}[layout]


def cells(table, sizes, wanted):
    for name, (dtypes, _) in table.items():
        for dtype in wanted:
            if dtype in dtypes:
                yield from (f"{name}/{dtype}/{layout}/{size}" for layout in LAYOUTS for size in sizes)


def measure(f, budget, wait):
    """The least seconds of a call. `wait` is called where the clock is read: on a GPU calls only begin their work."""
    block = 50e-6 if wait is None else 500e-6
    wait = wait or (lambda: None)
    f()
    wait()
    t = time.perf_counter()
    f()
    f()
    wait()
    one = (time.perf_counter() - t) / 2
    repeats = max(1, int(block / max(one, 1e-7)))
    times, end = [], time.perf_counter() + budget
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 100):
        t = time.perf_counter()
        for _ in range(repeats):
            f()
        wait()
        times.append((time.perf_counter() - t) / repeats)
    return min(times)


def serve(a):
    say, sys.stdout = sys.stdout, sys.stderr
    torch = importlib.import_module(a.serve)
    sys.modules["torch"] = torch
    torch.set_num_threads(a.threads)
    table = operations(torch)
    sizes = CUDA_SIZES if a.device == "cuda" else SIZES
    wait = torch.cuda.synchronize if a.device == "cuda" else None
    print(json.dumps(list(cells(table, sizes, a.dtypes.split(",")))), file=say, flush=True)
    for line in sys.stdin:
        name, dtype, layout, size = line.strip().split("/")
        try:
            x, y = (operand(torch, dtype, layout, sizes[size], seed, a.device) for seed in (0, 1))
            f = table[name][1]
            answer = measure(lambda f=f, x=x, y=y: f(x, y), a.budget, wait)
        except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, IndexError) as e:
            answer = f"{type(e).__name__}: {e}"[:160]
        print(json.dumps(answer), file=say, flush=True)


class Worker:
    def __init__(self, lib, a):
        command = [sys.executable, "-W", "ignore", __file__, "--serve", lib, "--threads", str(a.threads)]
        self.process = subprocess.Popen(
            [*command, "--budget", str(a.budget), "--device", a.device, "--dtypes", a.dtypes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
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


def wanted(names, a):
    if a.again:
        rows = (line.split() for line in pathlib.Path(a.again).read_text().splitlines())
        behind = {name for ratio, name in rows if float(ratio.rstrip("x")) < 1}
        names = [name for name in names if name in behind]
    return [name for name in names if re.search(a.only, name)]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only", default="", help="a regular expression over operation/dtype/layout/size")
    p.add_argument("--again", help="a file that --out wrote: only its cells under 1x")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--dtypes", default=",".join(USUAL), help="names with commas between them")
    p.add_argument("--budget", type=float, default=0.01, help="seconds for a cell in a turn, at least three calls")
    p.add_argument("--turns", type=int, default=4, help="the most turns of a cell in which Mica is behind")
    p.add_argument("--out", help="a file for all cells, the slowest first")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.serve:
        return serve(a)
    mine, peer = Worker("mica", a), Worker("torch", a)
    ratios = {}
    for name in wanted(peer.names, a):
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
