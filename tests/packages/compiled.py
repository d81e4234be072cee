"""Runs a program on Mica with compilation switched on for all of it.

usage: compiled.py HOW PROGRAM

HOW is `modules`: every outermost call of a module is a call of `torch.compile`'s, and steps of optimizers are too;
`whole`: the program as a whole is one compiled function; `graphs`: every outermost module is compiled with a backend
that runs the graphs it gets as they are; or `replays`: every outermost module is compiled by itself, and its calls are
replayed as soon as that is right. `run.py --compiled HOW` calls this.
"""

import sys
import weakref

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
    from mica._dynamo import compiled_calls
    from mica._dynamo.replay import calls

    compiled_calls.CALLS_BEFORE_REPLAY, calls._CALLS_BEFORE, calls.LongLists.fewest_calls = 1, 0, 1
    unasked = calls.Unasked
    unasked.plain_calls_of_each_kind, unasked.fewest_functions = 0, 0
    unasked.records_of_each_function, unasked.most_misses = 10**6, 10**4
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
