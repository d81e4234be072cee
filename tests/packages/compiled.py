"""Runs a program on Mica with compilation switched on for all of it.

usage: compiled.py HOW PROGRAM

HOW is `modules`: every outermost call of a module is a call of `torch.compile`'s, and steps of optimizers are too;
`whole`: the program as a whole is one compiled function; `graphs`: every outermost module is compiled with a backend
that runs the graphs it gets as they are; or `replays`: every outermost module is compiled by itself, and its calls are
replayed as soon as that is right. `run.py --compiled HOW` calls this.
"""

import sys
import weakref
from pathlib import Path

import mica as torch
from mica._cli.programs import run


def compile_modules():
    call = torch.nn.Module.__call__
    compiled = torch.compile(lambda module, args, kwargs: call(module, *args, **kwargs))
    torch.nn.Module.__call__ = lambda self, *args, **kwargs: compiled(self, args, kwargs)

    def step_hooks(optimizer, args, kwargs):
        if "step" not in optimizer.__dict__:
            optimizer.step = torch.compile(optimizer.step)

    torch.optim.optimizer.register_optimizer_step_pre_hook(step_hooks)


def compile_each_module(**options):
    """Compile each outermost module by itself. Returns the compiled functions, by their modules."""
    call, known = torch.nn.Module.__call__, weakref.WeakKeyDictionary()

    def through_compiled(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return call(self, *args, **kwargs)
        if self not in known:
            itself = weakref.ref(self)
            known[self] = torch.compile(lambda *args, **kwargs: call(itself(), *args, **kwargs), **options)
        return known[self](*args, **kwargs)

    torch.nn.Module.__call__ = through_compiled
    return known


def replay_soon():
    """Replay functions from their fourth call on, however little they call."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
    from calls_made_again import EARLY

    for place, name, value in EARLY:
        setattr(place, name, value)
    compile_each_module()


def main():
    how, program = sys.argv[1:]
    if how == "whole":
        torch.compile(run)([program])
    else:
        {
            "modules": compile_modules,
            "graphs": lambda: compile_each_module(backend=lambda graph, _: graph),
            "replays": replay_soon,
        }[how]()
        run([program])


if __name__ == "__main__":
    main()
