"""The `mica` command: run a program written for torch, take the tour, look at the installation."""

import sys

from mica._cli.programs import run

_HELP = """usage: mica COMMAND ...

Runs programs written for PyTorch on Mica.

  mica run script.py [arguments...]      run a program in which `import torch` means Mica
  mica run -m package [arguments...]     the same for a module, as python -m does
  mica launch [options] script.py        the same in many processes, with torchrun's options
  mica alias on | off | status           let torch mean Mica in the whole environment
  mica lab [--port N] [--no-browser]     instruments that show tensors, in the browser
  mica trace [-o page.html] script.py    the hidden copies, the memory and the slowest lines of a program
  mica check [--json] script.py          the lines that copy, make a GPU wait, or widen their numbers
  mica demo                              a tour of tensors in the terminal, half a minute
  mica doctor                            versions, the CPU and its threads, which devices were found and why not
  mica --version                         the version; with -v the same as mica doctor
  mica help [COMMAND]                    this text, or more about one command
"""

_HELP_OF = {
    "run": """usage: mica run script.py [arguments...]
       mica run -m package [arguments...]

Runs a Python program with `torch` meaning Mica: the program is not changed, and torch need not be installed.
All arguments after the script or the module's name are the program's own. Tracebacks begin in the program.

  -m          the next word is the name of a module, which is looked for in the current directory too
  -h, --help  this text

example:
  mica run train.py --epochs 3
""",
    "alias": """usage: mica alias on | off | status

Lets `import torch` mean Mica in every program of this environment, takes that back, or says how it is.
""",
    "demo": """usage: mica demo

Shows in the terminal, within half a minute, what tensors are and what Mica can show of them.
""",
    "doctor": """usage: mica doctor

Prints what one needs to know to explain a slow or failing program: the versions of Mica, Python and the libraries
that it uses, the instruction set that was chosen on this CPU, the number of threads, and for each kind of device
whether it can be used or why not.
""",
}


def _misused(text):
    print(text, end="", file=sys.stderr)
    raise SystemExit(2)


def _show_help(words):
    if not words:
        print(_HELP, end="")
    elif words == ["launch"]:
        from mica._cli.launch import HELP

        print(HELP, end="")
    elif len(words) == 1 and words[0] in ("check", "lab", "trace"):
        from importlib import import_module

        import_module(f"mica._cli.{words[0]}").main(["--help"])
    elif len(words) == 1 and words[0] in _HELP_OF:
        print(_HELP_OF[words[0]], end="")
    else:
        _misused(f"mica: there is no command {' '.join(words)!r}\n\n{_HELP}")


def main(argv=None):
    """Do what the words after `mica` say."""
    argv = sys.argv[1:] if argv is None else argv
    command, *rest = argv or ["help"]
    wants_help = bool(rest) and rest[0] in ("-h", "--help")
    if command in ("-h", "--help", "help"):
        _show_help(rest)
    elif command in _HELP_OF and wants_help:
        _show_help([command])
    elif command in ("-V", "--version", "version") and rest in ([], ["-v"], ["--verbose"]):
        if rest:
            return main(["doctor"])
        from mica.version import mica

        print(f"mica {mica}")
    elif command == "run":
        as_module = rest[:1] == ["-m"]
        if len(rest) <= as_module:
            _misused(_HELP_OF["run"])
        run(rest[as_module:], as_module)
    elif command == "launch":
        from mica._cli import launch

        if wants_help:
            print(launch.HELP, end="")
        elif rest:
            launch.main(rest)
        else:
            _misused(launch.HELP)
    elif command == "alias":
        from mica._cli import alias

        alias.main(rest)
    elif command == "lab":
        from mica._cli import lab

        lab.main(rest)
    elif command == "trace":
        from mica._cli import trace

        trace.main(rest)
    elif command == "check":
        from mica._cli import check

        check.main(rest)
    elif command == "demo" and not rest:
        from mica import demo

        demo.main()
    elif command == "doctor" and not rest:
        from mica._cli import doctor

        print(doctor.report(), end="")
    elif command in _HELP_OF:
        _misused(f"mica {command}: unexpected {' '.join(rest)!r}\n\n{_HELP_OF[command]}")
    else:
        _misused(f"mica: there is no command {command!r}\n\n{_HELP}")


if __name__ == "__main__":
    main()
