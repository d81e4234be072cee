"""The `mica` command: run a program written for torch, take the tour, show versions."""

import os
import sys

_USAGE = """usage: mica run [-m] script.py [arguments...]   run a program with torch meaning Mica
       mica alias on | off | status             let torch mean Mica in the whole environment
       mica lab [--port N] [--no-browser]       instruments that show tensors, in the browser
       mica trace [-o page.html] script.py ...  its hidden copies, memory and slowest lines
       mica demo                                a short tour in the terminal
       mica --version"""


def _own_frames_dropped(traceback, code):
    """The part of the traceback that begins in the program."""
    while traceback is not None and traceback.tb_frame.f_code is not code:
        traceback = traceback.tb_next
    return traceback


def _compiled(script):
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        raise SystemExit(f"mica: can't open file '{script}': [Errno {error.errno}] {error.strerror}") from None
    return compile(source, script, "exec")


def _as_main(name, file, spec=None):
    """A fresh __main__, as the interpreter makes one."""
    import builtins
    import types

    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    module.__file__ = file
    module.__spec__ = spec
    module.__package__ = None if spec is None else spec.parent
    module.__loader__ = None if spec is None else spec.loader
    sys.modules["__main__"] = module
    return module


def run(argv, as_module=False):
    """Run argv[0], a script or with `as_module` a module's name, as the main program; the rest are its arguments."""
    from mica import _torch_alias

    _torch_alias.install()
    target, *arguments = argv
    path_of_torch = os.path.join(os.path.dirname(__file__), "_torch_path")
    # For the processes that the program starts.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path_of_torch, os.environ.get("PYTHONPATH")]))
    if as_module:
        import runpy

        sys.path[:0] = [os.getcwd(), path_of_torch]
        sys.argv = [target, *arguments]
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    sys.argv = [target, *arguments]
    sys.path[:1] = [os.path.dirname(os.path.realpath(target)), path_of_torch]
    code = None
    try:
        code = _compiled(target)
        exec(code, _as_main(target, target).__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        traceback = _own_frames_dropped(error.__traceback__, code) if code is not None else None
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    command, *rest = argv or ["--help"]
    if command in ("-h", "--help", "help"):
        print(_USAGE)
    elif command in ("-V", "--version", "version"):
        from mica.version import __version__

        print(f"mica {__version__}")
    elif command == "run" and rest:
        as_module = rest[0] == "-m"
        if len(rest) <= as_module:
            raise SystemExit(_USAGE)
        run(rest[as_module:], as_module)
    elif command == "alias":
        from mica._cli import alias

        alias.main(rest)
    elif command == "lab":
        from mica._cli import lab

        lab.main(rest)
    elif command == "trace":
        from mica._cli import trace

        trace.main(rest)
    elif command == "demo" and not rest:
        from mica import demo

        demo.main()
    else:
        print(_USAGE, file=sys.stderr)
        raise SystemExit(2)


if __name__ == "__main__":
    main()
