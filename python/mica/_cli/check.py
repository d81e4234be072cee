"""`mica check`: run a program as it is and name the lines that will copy, wait or promote, as a compiler names its warnings."""

import argparse
import contextlib
import json
import os
import sys


def _arguments(argv):
    parser = argparse.ArgumentParser(
        prog="mica check",
        description="Run a program with torch meaning Mica, and name the lines that copy without being asked to, that make a "
        "GPU wait, or that widen their numbers, as file:line:column: kind: message. What the program prints goes to the "
        "standard error. The exit status is 1 if something was found, 2 if the program failed.",
    )
    parser.add_argument("--json", action="store_true", help="a list of objects instead of lines")
    parser.add_argument("--steps", type=int, metavar="N", help="end the program after N steps of an optimizer")
    parser.add_argument("--all", action="store_true", dest="everywhere", help="lines of installed packages too")
    parser.add_argument("-m", action="store_true", dest="module", help="the program is a module's name")
    parser.add_argument("program", help="a script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    options = parser.parse_args(argv)
    if options.steps is not None and options.steps < 1:
        parser.error(f"argument --steps: {options.steps} is less than 1")
    return options


class _Enough(SystemExit):
    """The steps that were asked for are done; no handler of the program's for exceptions is meant."""


def _after_steps(count):
    from mica.optim.optimizer import register_optimizer_step_post_hook

    done = 0

    def seen(*_):
        nonlocal done
        done += 1
        if done >= count:
            raise _Enough

    return register_optimizer_step_post_hook(seen)


def _shown(found, everywhere):
    """The findings with short paths, leaving out those in installed packages."""
    kept = []
    for finding in found.findings:
        if everywhere or "site-packages" not in finding.file:
            short = os.path.relpath(finding.file)
            finding.file = finding.file if short.startswith("..") else short
            kept.append(finding)
    return kept


def main(argv):
    """Run, print the findings, exit with 0, 1 or 2."""
    options = _arguments(argv)
    from mica._cli.programs import run
    from mica.inspect._check import check

    found, failed = check(), False
    hook = _after_steps(options.steps) if options.steps else None
    with contextlib.redirect_stdout(sys.stderr):
        try:
            with found, contextlib.suppress(_Enough):
                run([options.program, *options.arguments], options.module)
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            failed = end.code not in (None, 0)
        except Exception:  # what was seen until then is still reported
            import traceback

            traceback.print_exc()
            failed = True
        finally:
            if hook is not None:
                hook.remove()
    findings = _shown(found, options.everywhere)
    if options.json:
        print(json.dumps([f.to_dict() for f in findings], indent=2))
    else:
        for finding in findings:
            print(finding)
        print(f"{len(findings)} finding{'' if len(findings) == 1 else 's'}", file=sys.stderr)
    raise SystemExit(2 if failed else bool(findings))
