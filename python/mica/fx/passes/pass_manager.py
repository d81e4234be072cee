"""Passes of any kind that run one after the other, in an order that constraints check.

`passes.infra.pass_manager` orders passes of graph modules by itself.
"""

import functools
import inspect
import logging

__all__ = ["PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint",
           "this_before_that_pass_constraint"]  # fmt: skip

_log = logging.getLogger(__name__)


def inplace_wrapper(fn):
    """A pass that calls `fn`, which changes its argument, and returns the argument."""

    @functools.wraps(fn)
    def changed(source, *args, **kwargs):
        fn(source, *args, **kwargs)
        return source

    return changed


def log_hook(fn, level=logging.INFO):
    """A pass that writes what `fn` returns into the log at this level."""

    @functools.wraps(fn)
    def logged(*args, **kwargs):
        result = fn(*args, **kwargs)
        _log.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return logged


def loop_pass(base_pass, n_iter=None, predicate=None):
    """A pass that runs another `n_iter` times, or as long as `predicate(object)` holds; one of the two is given."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @functools.wraps(base_pass)
    def repeated(source):
        if n_iter is not None:
            for _ in range(n_iter):
                source = base_pass(source)
            return source
        while predicate(source):
            source = base_pass(source)
        return source

    return repeated


def this_before_that_pass_constraint(this, that):
    """A constraint by which `this` runs before `that`."""
    return lambda a, b: not (a == that and b == this)


def these_before_those_pass_constraint(these, those):
    """A constraint by which `these` run before `those`, which also holds for passes that wrap them."""

    def allowed(a, b):
        return not (inspect.unwrap(a) == those and inspect.unwrap(b) == these)

    return allowed


def _check(constraint, passes):
    """Raise RuntimeError if two passes are in an order that a constraint does not allow."""
    for i, first in enumerate(passes):
        for j, second in enumerate(passes[i + 1 :], i + 1):
            if not constraint(first, second):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {second} before {first} but found {first} at index "
                    f"{i} and {second} at index {j} in pass list."
                )


class PassManager:
    """Runs passes in their order. A pass takes an object and returns the changed one.

    A constraint is a function of two passes, which says whether the first may run before the second.
    """

    _validated = False

    def __init__(self, passes=None, constraints=None):
        self.passes, self.constraints = passes or [], constraints or []

    @classmethod
    def build_from_passlist(cls, passes):
        """A manager of these passes, without constraints."""
        return cls(list(passes))

    def add_pass(self, _pass):
        """Run a further pass after the others."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint):
        """Check a further constraint before the next run."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes):
        """Remove the passes of these names."""
        self.passes = [each for each in self.passes if each.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target, _replacement):
        """Put another pass in the place of those that have the name of `_target`."""
        self.passes = [_replacement if each.__name__ == _target.__name__ else each for each in self.passes]
        self._validated = False

    def validate(self):
        """Raise RuntimeError if the order of the passes breaks a constraint."""
        if self._validated:
            return
        for constraint in self.constraints:
            _check(constraint, self.passes)
        self._validated = True

    def __call__(self, source):
        """Run all passes; the last one's result."""
        self.validate()
        for each in self.passes:
            source = each(source)
        return source
