"""`mica trace --ranks N`: a program in several processes, and on one page what they did together."""

import json
import os
import subprocess
import sys
import tempfile
import time


def record(folder, run):
    """Run the program in one process, and write the collectives that it took part in to a file of the folder."""
    from mica import inspect

    began = time.time()
    with inspect.collectives() as seen:
        status = run()
    rank = int(os.environ.get("RANK", 0))
    with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(
            {
                "rank": rank, "seconds": time.time() - began, "waited": seen.waited,
                "collectives": [each.to_dict() for each in seen],
            },
            file,
        )  # fmt: skip
    return status


def _summary(ranks, stream):
    from mica.inspect._ranks import by_line
    from mica.inspect._terminal import readable_bytes

    for rank in ranks:
        waits = ", ".join(
            f"{seconds:.3f} s for rank {other}" for other, seconds in rank["waited"].items() if seconds > 0
        )
        stream.write(
            f"rank {rank['rank']}: {len(rank['collectives'])} collectives, {sum(each['seconds'] for each in rank['collectives']):.3f} s"
            f" of {rank['seconds']:.3f} s{'; waited ' + waits if waits else ''}\n"
        )
    for row in by_line(ranks)[:10]:
        stream.write(
            f"  {row['line']}  {row['operation']}, {row['calls']} calls, {readable_bytes(row['bytes'])}, {row['seconds'] * 1e3:.1f} ms\n"
        )


def main(options):
    """Launches the program and writes the page; the exit status of the launch."""
    from html import escape

    from mica.inspect import _ranks, _report

    with tempfile.TemporaryDirectory(prefix="mica-trace-") as folder:
        program = ["-m", options.program] if options.module else [options.program]
        status = subprocess.call(
            [
                sys.executable, "-m", "mica.cli", "launch", "--standalone", "--nproc-per-node", str(options.ranks), "-m", "mica.cli", "trace",
                "--part", folder, *program, *options.arguments,
            ]
        )  # fmt: skip
        ranks = []
        for name in sorted(os.listdir(folder), key=lambda name: int(name[4:-5])):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                ranks.append(json.load(file))
    if not ranks:
        print("mica trace: no process has come to its end", file=sys.stderr)
        return status or 1
    _summary(ranks, sys.stderr)
    title = os.path.basename(options.program)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(_report.page(f"mica trace {title}", f"<h1>{escape(title)}</h1>", *_ranks.sections(ranks)))
    if options.lab:
        _show(ranks, options)
    return status


def _show(ranks, options):
    """The run in the Lab, until Ctrl-C."""
    import contextlib
    import threading

    from mica import lab
    from mica.inspect import _ranks

    server = lab._show(_ranks.for_lab(ranks), browser=not options.no_browser)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            print(f"The program has ended; {server.url}#j shows it until Ctrl-C.", file=sys.stderr, flush=True)
            threading.Event().wait()
    finally:
        server.stop()
