"""Where the time of a program's kernels goes on the GPU, kernel by kernel.

A kernel may be started while the one before it still runs (backends/cuda/launch.cuh), and then its own time holds
a wait. So what counts here is by how much each kernel moves the end of all work: these spans add up to the whole.

mica run bench/cuda_spans.py compile/gpt2_small_bf16_amp     # a row of workloads.py; `python` measures torch
"""

import argparse
import collections
import json
import os
import tempfile
from pathlib import Path

import torch
from rows import rows


def kernels(run, times=4):
    """The kernels of the last of several calls of run(), as (name, span in us, own time in us), in the order in which
    they end. The calls before it let the host get ahead of the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(times):
            run()
        torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        profile.export_chrome_trace(path)
        events = json.loads(Path(path).read_text())["traceEvents"]
    finally:
        os.remove(path)
    of_gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    of_gpu.sort(key=lambda e: e["ts"] + e["dur"])
    found, end = [], None
    for event in of_gpu:
        finished = event["ts"] + event["dur"]
        span = event["dur"] if end is None else finished - end
        found.append((event["name"], span, event["dur"]))
        end = finished
    return found[-(len(found) // times) :]


def report(found, width=150, file=None):
    """Prints the sum of the spans by name, the largest first."""
    spans = collections.defaultdict(list)
    for name, span, _ in found:
        spans[name].append(span)
    print(f"{len(found)} kernels, {sum(s for _, s, _ in found):,.0f} us", file=file)
    for name, of_name in sorted(spans.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(of_name):9.1f} us  {len(of_name):4d} x  {name[:width]}", file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row")
    parser.add_argument("--all", action="store_true", help="each kernel of its own, in order")
    arguments = parser.parse_args()
    run = rows(torch, "cuda", True)[arguments.row]()
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    found = kernels(run)
    report(found)
    if arguments.all:
        for name, span, own in found:
            print(f"{span:8.2f} {own:8.2f}  {name[:150]}")


if __name__ == "__main__":
    main()
