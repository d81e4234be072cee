"""Runs a program in which torch is Mica, as the interpreter would run it."""

import os
import sys

PATH_OF_TORCH = os.path.join(os.path.dirname(os.path.dirname(__file__)), "_as_torch", "path")


def pass_torch_on(always=False):
    """Let torch be Mica in the processes that this one starts, if it is in this one."""
    module = sys.modules.get("torch")
    known = os.environ.get("PYTHONPATH", "")
    if (always or (module is not None and module is sys.modules["mica"])) and PATH_OF_TORCH not in known.split(
        os.pathsep
    ):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [PATH_OF_TORCH, known]))


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
    from mica._as_torch import alias as _torch_alias

    _torch_alias.install()
    target, *arguments = argv
    pass_torch_on()
    if as_module:
        import runpy

        sys.path[:0] = [os.getcwd(), PATH_OF_TORCH]
        sys.argv = [target, *arguments]
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    sys.argv = [target, *arguments]
    sys.path[:1] = [os.path.dirname(os.path.realpath(target)), PATH_OF_TORCH]
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
