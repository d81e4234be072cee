"""Functions that change an input which others share memory with.

A graph has its inputs apart: what one of them writes, another would not see. So a graph is made of the memory itself,
of which the inputs are views within it.
"""

import itertools

import mica
from mica import _C
from mica._functorch.alias_facts import facts_of, memory_of
from mica._functorch.compiled_function import Compiled, copied, draws_kept

__all__ = ["compiled_for", "repeats", "sharing"]


def sharing(values):
    """The numbers of the inputs that lie in the same memory, group by group."""
    groups = {}
    for i, value in enumerate(values):
        if (place := memory_of(value)) is not None:
            groups.setdefault(place, []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def repeats(values):
    """For each input, the number of the first one that is the same tensor."""
    firsts = {}
    return [firsts.setdefault(id(v) if isinstance(v, _C.TensorBase) else ("", i), i) for i, v in enumerate(values)]


class _Joined:
    """A compiled function whose inputs were made fewer: the same tensor once, and memory in place of its views."""

    def __init__(self, fn, flat_inputs, make):
        self.firsts = repeats(flat_inputs)
        kept = [i for i, first in enumerate(self.firsts) if first == i]
        self.kept, places = kept, {number: place for place, number in enumerate(kept)}

        def apart(*values):
            return fn(*(values[places[first]] for first in self.firsts))

        self.inner = make(apart, [flat_inputs[i] for i in kept])
        # Other inputs than the same ones twice want another graph, whether or not they are written.
        self.written = {i for i, first in enumerate(self.firsts) if self.firsts.count(first) > 1}
        self.written.update(i for i in kept if places[i] in self.inner.written)

    def lacks_gradients(self, flat_inputs):
        return self.inner.lacks_gradients([flat_inputs[i] for i in self.kept])

    def __call__(self, flat_inputs):
        return self.inner([flat_inputs[i] for i in self.kept])


class _OfMemory:
    """A compiled function of the memory that some of the inputs are views of."""

    def __init__(self, fn, flat_inputs, groups, outputs, compilers, options):
        self.groups, self.outputs = groups, outputs
        grouped = {i for group in groups for i in group}
        self.others = [i for i in range(len(flat_inputs)) if i not in grouped]
        layouts = {i: (v.shape, v.stride(), v.storage_offset()) for i, v in enumerate(flat_inputs) if i in grouped}
        owner = {i: number for number, group in enumerate(groups) for i in group}

        def of_memory(*values):
            bases, rest = values[: len(groups)], iter(values[len(groups) :])
            views = [
                _view(bases[owner[i]], layouts[i]) if i in grouped else next(rest) for i in range(len(flat_inputs))
            ]
            return fn(*views)

        self.inner = Compiled(of_memory, self._given(flat_inputs), compilers, *options)
        self.written = grouped | {i for n, i in enumerate(self.others, len(groups)) if n in self.inner.written}

    def _given(self, flat_inputs):
        return [
            *(_memory([flat_inputs[i] for i in group]) for group in self.groups),
            *(flat_inputs[i] for i in self.others),
        ]

    def lacks_gradients(self, flat_inputs):
        return self.inner.lacks_gradients(self._given(flat_inputs))

    def __call__(self, flat_inputs):
        made = self.inner(self._given(flat_inputs))
        # Views are made of the very inputs, and inputs that are returned are these objects.
        return [
            facts.made_from(flat_inputs[facts.source]) if facts.kind in ("input", "of input") else value
            for facts, value in zip(self.outputs, made, strict=True)
        ]


def _view(base, layout):
    return base.as_strided(*layout)


def _memory(views):
    """A tensor that all of these are views of; one of them, if the others are views of it."""
    bases = {
        id(view if view._base is None else view._base): view if view._base is None else view._base for view in views
    }
    if len(bases) == 1:
        return next(iter(bases.values()))
    if any(view.requires_grad for view in views):
        return None
    return mica.empty(0, dtype=views[0].dtype, device=views[0].device).set_(views[0].untyped_storage())


def _overlap(views):
    """Whether two tensors of the same memory may have an element in common. Of large ones only their ends are compared."""
    spans = sorted((view.storage_offset(), view.storage_offset() + _reach(view)) for view in views)
    if all(first[1] < second[0] for first, second in itertools.pairwise(spans)):
        return False
    if sum(view.numel() for view in views) > 10_000:
        return True
    seen = set()
    for view in views:
        steps = [
            range(0, size * step, step) if step else (0,) for size, step in zip(view.shape, view.stride(), strict=True)
        ]
        places = {view.storage_offset() + sum(each) for each in itertools.product(*steps)}
        if not seen.isdisjoint(places):
            return True
        seen |= places
    return False


def _reach(view):
    return sum((size - 1) * step for size, step in zip(view.shape, view.stride(), strict=True))


class _AsItIs:
    """A function that is called without a graph."""

    def __init__(self, fn):
        self.fn, self.written = fn, set()

    @staticmethod
    def lacks_gradients(flat_inputs):
        return False

    def __call__(self, flat_inputs):
        return self.fn(*flat_inputs)


def compiled_for(fn, flat_inputs, compilers, *options):
    """What computes a function of inputs like these: a list of its results for a list of inputs."""
    if any(first != i for i, first in enumerate(repeats(flat_inputs))):
        return _Joined(fn, flat_inputs, lambda *given: compiled_for(*given, compilers, *options))
    groups = sharing(flat_inputs)
    if not groups:
        return Compiled(fn, flat_inputs, compilers, *options)
    given = copied(flat_inputs, leaves=not mica.is_grad_enabled())
    with draws_kept(flat_inputs):
        inputs, outputs, _, _ = facts_of(fn, given)
    changed = [
        group for group in groups
        if any(inputs[i].changed for i in group) and _overlap([flat_inputs[i] for i in group])
    ]  # fmt: skip
    if not changed:
        return Compiled(fn, flat_inputs, compilers, *options)
    reshaped = any(inputs[i].reshaped or inputs[i].moved for group in changed for i in group)
    dtypes = any(len({flat_inputs[i].dtype for i in group}) > 1 for group in changed)
    subclasses = any(inputs[i].is_subclass for group in changed for i in group)
    if reshaped or dtypes or subclasses or any(_memory([flat_inputs[i] for i in group]) is None for group in changed):
        return _AsItIs(fn)
    return _OfMemory(fn, flat_inputs, changed, outputs, compilers, options)
