"""Passes one after the other."""

import inspect

from mica.fx.passes.infra.pass_base import PassResult

__all__ = ["PassManager", "inplace_wrapper", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn):
    """A function that changes a module, or returns another, as one that returns a PassResult."""
    if fn is None:
        return None

    def wrapped(graph_module):
        result = fn(graph_module)
        return (
            result if isinstance(result, PassResult) else PassResult(graph_module if result is None else result, True)
        )

    wrapped.__name__ = fn.__name__ if inspect.isfunction(fn) else type(fn).__name__
    return wrapped


inplace_wrapper = pass_result_wrapper


def this_before_that_pass_constraint(this, that):
    """A constraint: one pass does not come after another."""
    return lambda a, b: not (a == that and b == this)


def _name(each):
    return each.__name__ if inspect.isfunction(each) else type(each).__name__


def _topological_sort_passes(passes, constraints):
    """The passes in an order that keeps the constraints: those that nothing has to come before, in their order, first."""
    if not constraints:
        return passes
    after = {each: [] for each in passes}  # a pass -> those that have to come after it
    missing = dict.fromkeys(passes, 0)
    for first in passes:
        for second in passes:
            for constraint in constraints if first != second else ():
                if not constraint(first, second):
                    after[second].append(first)
                    missing[first] += 1
    ready = [each for each in passes if not missing[each]]
    for each in ready:  # which grows
        for later in after[each]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(ready) != len(passes):
        stuck = [each for each in passes if missing[each]]
        raise RuntimeError(f"Circular dependency detected within the following passes: {stuck}")
    return ready


class PassManager:
    """Runs passes in order, as often as `steps` says or until none changes anything."""

    def __init__(
        self, passes=None, constraints=None, steps=None, run_checks_after_each_pass=False, suppress_check_failures=False
    ):
        self.passes, self.constraints = list(passes or []), list(constraints or [])
        self.steps = 1 if steps is None else steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass):
        self.passes.append(_pass)

    def add_constraint(self, constraint):
        self.constraints.append(constraint)

    def validate_constraints(self):
        """Raise if the order of passes breaks a constraint."""
        for constraint in self.constraints:
            for i, first in enumerate(self.passes):
                for second in self.passes[i + 1 :]:
                    if not constraint(first, second):
                        raise RuntimeError(f"pass schedule constraint violated. Expected {first} before {second}")

    def solve_constraints(self):
        """Put the passes into an order that keeps the constraints."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)

    def add_checks(self, check):
        """Let a function of a module be what is checked."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check

    def check(self, module):
        """What is checked after passes: to be overridden."""

    def __call__(self, module):
        self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            modified = False
            for i, each in enumerate(self.passes):
                try:
                    result = self._run(each, module)
                except Exception as error:
                    before = [_name(earlier) for earlier in self.passes[:i]]
                    text = (
                        f"An error occurred when running the '{_name(each)}' pass after the following passes: {before}"
                    )
                    raise Exception(text) from error
                module, modified = result.graph_module, modified or result.modified
            changed = changed or modified
            if not modified:
                break
        return PassResult(module, changed)

    def _run(self, each, module):
        result = each(module)
        if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
            raise TypeError(
                f"The result of the pass {_name(each)} should be type PassResult.Please wrap it with pass_result_wrapper()"
            )
        result.graph_module.recompile()
        if self.run_checks_after_each_pass:
            self.check(result.graph_module)
        return result
