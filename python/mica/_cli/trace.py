"""`mica trace`: run a program as it is and say what it copied, what it held, and where its time went."""

import argparse
import contextlib
import os
import sys
import threading
import time

from mica._cli import trace_ranks


def _arguments(argv):
    parser = argparse.ArgumentParser(
        prog="mica trace",
        description="Run a program with torch meaning Mica, and report the copies it did not ask for, the memory it held, "
        "and its slowest lines. Without --memory, --copies or --ops: all three.",
    )
    parser.add_argument("--memory", action="store_true", help="what is held, by line; the peak; what is never let go")
    parser.add_argument("--copies", action="store_true", help="hidden copies, by line")
    parser.add_argument("--ops", action="store_true", help="the time of operations, by line")
    parser.add_argument("-o", "--output", metavar="FILE", default="mica-trace.html", help="the page (mica-trace.html)")
    parser.add_argument("--lab", action="store_true", help="show the run in the Lab while it lasts")
    parser.add_argument("--no-browser", action="store_true", help="with --lab: print the address and open nothing")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="run it in N processes: what they did together, and who waited for whom"
    )
    # Set in one of several processes: the folder for its part of the report.
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("-m", action="store_true", dest="module", help="the program is a module's name")
    parser.add_argument("program", help="a script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    return parser.parse_args(argv)


class _Progress(threading.Thread):
    """One line on the terminal that says how long the program runs and what it holds."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._shown = sys.stderr.isatty()

    def run(self):
        from mica import _C
        from mica.inspect._terminal import readable_bytes

        started = time.monotonic()
        while not self._ended.wait(0.5):
            if self._shown:
                held = readable_bytes(_C._cpu_memory_stats()[0])
                sys.stderr.write(f"\r\033[Kmica trace: {time.monotonic() - started:.0f} s, {held} held")
                sys.stderr.flush()

    def stop(self):
        self._ended.set()
        self.join()
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def _summary(parts, stream):
    from mica.inspect._terminal import readable_bytes

    say = stream.write
    log, held, timed = parts.get("copies"), parts.get("memory"), parts.get("ops")
    if log is not None:
        say(f"\nHidden copies: {len(log)}, {readable_bytes(log.bytes)}\n")
        for row in log.by_line()[:10]:
            say(f"  {row['line']}  {row['copies']} x  {row['why']}\n      {row['code']}\n")
    if held is not None:
        kinds = ", ".join(f"{kind} {readable_bytes(amount)}" for kind, amount in held.at_peak().items() if amount)
        say(f"\nMemory: peak {readable_bytes(held.peak())} ({kinds})\n")
        for row in held.by_line()[:5]:
            say(f"  {row['line']}  {readable_bytes(row['bytes'])} of {row['kind']}\n      {row['code']}\n")
        if leaks := held.leaks():
            say("\nHeld and never let go:\n")
            for row in leaks[:5]:
                say(f"  {row['line']}  {row['blocks']} blocks, {readable_bytes(row['bytes'])}\n      {row['code']}\n")
    if timed is not None:
        say(f"\nOperations: {timed.seconds:.3g} s\n")
        for row in timed.by_line()[:5]:
            say(f"  {row['line']}  {row['seconds'] * 1e3:.1f} ms in {row['calls']} calls\n      {row['code']}\n")


def _write_page(path, program, parts):
    from html import escape

    from mica.inspect import _report

    sections = [f"<h1>{escape(os.path.basename(program))}</h1>"]
    if "copies" in parts:
        sections += _report.copies_sections(parts["copies"])
    if "memory" in parts:
        sections += _report.memory_sections(parts["memory"])
    if "ops" in parts:
        sections += _report.operations_sections(parts["ops"])
    with open(path, "w", encoding="utf-8") as file:
        file.write(_report.page(f"mica trace {os.path.basename(program)}", *sections))


def _run(options):
    """Run the program; its exit status."""
    from mica._cli.programs import run

    try:
        run([options.program, *options.arguments], options.module)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _live(options):
    """Run the program while the Lab shows it; the page stays until Ctrl-C."""
    from mica import lab

    shown = lab.watch(browser=not options.no_browser)
    try:
        status = _run(options)
        shown.stop()
        with contextlib.suppress(KeyboardInterrupt):
            print(f"The program has ended; {shown.url}#j shows it until Ctrl-C.", file=sys.stderr, flush=True)
            threading.Event().wait()
    finally:
        shown.close()
    return status


def main(argv):
    """Run the program under the recordings that are asked for; exits as the program does."""
    options = _arguments(argv)
    if options.ranks is not None and options.ranks < 1:
        raise SystemExit(f"mica trace: --ranks takes a number of processes, but got {options.ranks}")
    if options.part:
        raise SystemExit(trace_ranks.record(options.part, lambda: _run(options)))
    chosen = [name for name in ("copies", "memory", "ops") if getattr(options, name)] or ["copies", "memory", "ops"]
    try:
        # The page is written at the end. Opening it now shows before the program runs that it can be.
        with open(options.output, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SystemExit(f"mica trace: can't write '{options.output}': {error.strerror}") from None
    if options.ranks:
        status = trace_ranks.main(options)
        print(f"\nThe whole report: {options.output}", file=sys.stderr)
        raise SystemExit(status)
    from mica import inspect

    makers = {"copies": inspect.copies, "memory": inspect.memory, "ops": inspect.operations}
    if options.lab:
        raise SystemExit(_live(options))
    parts, progress = {}, _Progress()
    with contextlib.ExitStack() as stack:
        for name in chosen:
            parts[name] = stack.enter_context(makers[name]())
        progress.start()
        try:
            status = _run(options)
        finally:
            progress.stop()
    _summary(parts, sys.stderr)
    _write_page(options.output, options.program, parts)
    print(f"\nThe whole report: {options.output}", file=sys.stderr)
    raise SystemExit(status)
