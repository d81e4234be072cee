#!/usr/bin/env python3
"""One list of workloads (rows/), run with any module that speaks torch's API.

    python3 workloads.py --lib torch --device cpu --threads 2 --out torch.json      one library
    python3 workloads.py --lib mica --versus torch --device cpu --threads 2         side by side, row by row
    python3 workloads.py --compare mica.json torch.json                             two saved runs

Side by side, each library lives in a process of its own and the two take turns on every row, so that a noisy
machine disturbs both alike; a row's figure is the better of its turns.

Each row is a median time in seconds. A row that the module cannot run is kept with its error, so
that a gap shows as a gap. On CUDA, a row is the time of a batch of calls up to a synchronize.
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

from rows import rows


def measure(torch, dev, make, budget=1.0, batch_us=200):
    f = make()
    sync = torch.cuda.synchronize if dev != "cpu" else (lambda: None)
    t = time.perf_counter()
    f()
    sync()
    one = time.perf_counter() - t
    if one > 5:
        return one
    for _ in range(2):
        f()
    sync()
    t = time.perf_counter()
    f()
    sync()
    one = time.perf_counter() - t
    k = max(1, int(batch_us * 1e-6 / max(one, 1e-7)))
    ts, end = [], time.perf_counter() + budget
    while len(ts) < 5 or (time.perf_counter() < end and len(ts) < 200):
        t = time.perf_counter()
        for _ in range(k):
            f()
        sync()
        ts.append((time.perf_counter() - t) / k)
    return statistics.median(ts)


def load(lib, threads):
    t = time.perf_counter()
    torch = importlib.import_module(lib)
    seconds = time.perf_counter() - t
    if lib != "torch":
        sys.modules["torch"] = torch
    if threads:
        torch.set_num_threads(threads)
    return torch, {"_import_s": seconds, "_version": getattr(torch, "__version__", "?")}


def one_row(torch, device, make, budget):
    try:
        return measure(torch, device, make, budget)
    except Exception as e:
        return f"{type(e).__name__}: {e}"[:160]


def serve(a):
    """Answer row names on standard input with their times, one JSON value a line."""
    say, sys.stdout = sys.stdout, sys.stderr
    torch, facts = load(a.lib, a.threads)
    table = rows(torch, a.device, a.device != "cpu")
    print(json.dumps([facts, list(table)]), file=say, flush=True)
    for line in sys.stdin:
        print(json.dumps(one_row(torch, a.device, table[line.strip()], a.budget)), file=say, flush=True)


class Worker:
    def __init__(self, lib, a):
        self.cmd = [
            sys.executable,
            __file__,
            "--serve",
            "--lib",
            lib,
            "--device",
            a.device,
            "--threads",
            str(a.threads),
            "--budget",
            str(a.budget),
        ]
        self.start()

    def start(self):
        self.p = subprocess.Popen(self.cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts, self.names = json.loads(self.p.stdout.readline())

    def row(self, name):
        print(name, file=self.p.stdin, flush=True)
        line = self.p.stdout.readline()
        if not line:
            code = self.p.wait()
            self.start()
            return f"the process ended with {code}"
        return json.loads(line)


def versus(a):
    ws = {lib: Worker(lib, a) for lib in (a.lib, a.versus)}
    res = {lib: dict(w.facts) for lib, w in ws.items()}
    for name in ws[a.versus].names:
        if a.only and not re.search(a.only, name):
            continue
        for _turn in range(a.turns):
            for lib, w in ws.items():
                t = w.row(name)
                old = res[lib].get(name)
                res[lib][name] = min(t, old) if isinstance(t, float) and isinstance(old, float) else t
                if isinstance(t, str) or t > 5:
                    break
        print_row(name, *(res[lib].setdefault(name, "not run") for lib in (a.lib, a.versus)))
    for lib in ws:
        if a.out:
            pathlib.Path(f"{a.out}.{lib}.json").write_text(json.dumps(res[lib], indent=1))
    summary(res[a.lib], res[a.versus])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lib", default="torch")
    p.add_argument("--versus")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--out")
    p.add_argument("--only", default="", help="a regular expression")
    p.add_argument("--budget", type=float, default=0.3)
    p.add_argument("--turns", type=int, default=2)
    p.add_argument("--compare", nargs=2)
    p.add_argument("--serve", action="store_true")
    a = p.parse_args()
    if a.serve:
        return serve(a)
    if a.compare:
        mine, theirs = (json.loads(pathlib.Path(f).read_text()) for f in a.compare)
        for name in theirs:
            if not name.startswith("_"):
                print_row(name, mine.get(name, "missing"), theirs[name])
        return summary(mine, theirs)
    if a.versus:
        return versus(a)
    torch, out = load(a.lib, a.threads)
    for name, make in rows(torch, a.device, a.device != "cpu").items():
        if a.only and not re.search(a.only, name):
            continue
        out[name] = one_row(torch, a.device, make, a.budget)
        print(
            f"{name:45s} " + (f"{out[name] * 1e6:12.2f} us" if isinstance(out[name], float) else f"FAILS {out[name]}"),
            flush=True,
        )
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(out, indent=1))


def print_row(name, x, y):
    if isinstance(x, str) or isinstance(y, str):
        print(f"{name:45s} {x if isinstance(x, str) else 'peer: ' + y}", flush=True)
    else:
        print(f"{name:45s} {x * 1e6:12.2f} us  {y * 1e6:12.2f} us  peer/mine {y / x:6.2f}x", flush=True)


def summary(mine, theirs):
    groups = {}
    for k, y in theirs.items():
        if not k.startswith("_"):
            x = mine.get(k, "missing")
            groups.setdefault(k.split("/")[0], []).append(None if isinstance(x, str) or isinstance(y, str) else y / x)
    print("\ngroup (peer time / mine, geometric mean; higher is better for mine)")
    for g, v in groups.items():
        ok = [x for x in v if x is not None]
        print(
            f"  {g:14s} {statistics.geometric_mean(ok) if ok else float('nan'):6.2f}x  worst {min(ok, default=float('nan')):6.2f}x  runs {len(ok)}/{len(v)}"
        )


if __name__ == "__main__":
    main()
