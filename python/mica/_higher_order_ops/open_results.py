"""What conditions and loops return while a graph is made: numbers and sizes that only data decide are open."""

import mica
from mica._subclasses.fake_tensor import DynamicOutputShapeException

__all__ = ["counters", "fit", "kinds", "merged"]


def kinds(leaves):
    """The kinds of values, as texts and types that are compared without asking open sizes."""
    return [
        (tuple(map(str, leaf.shape)), leaf.dtype)
        if isinstance(leaf, mica.Tensor)
        else (int if isinstance(leaf, mica.SymInt) else type(leaf))
        for leaf in leaves
    ]


def _env(around, what):
    """The environment for numbers that only data decide."""
    if not hasattr(around, "sizes"):  # torch._dynamo.export
        return around._env()
    env = around.sizes._env
    if env is None and getattr(around, "tracing_mode", None) == "fake":
        raise DynamicOutputShapeException(what)  # make_fx begins again, with sizes that are open
    if env is None and getattr(around, "runs_again", False):
        from mica.export._data import NeedsData

        raise NeedsData
    if env is None:
        raise NotImplementedError(
            f'{what}, and the graph is made without open sizes, which make_fx has with tracing_mode="symbolic"'
        )
    return env


def counters(around, leaves):
    """What a loop carries, with open numbers for whole numbers, which have other values from step to step."""
    if not any(map(_is_counter, leaves)):
        return leaves
    env = _env(around, "torch.while_loop: a whole number is among what is carried")
    return [env.create_unbacked_symint() if _is_counter(leaf) else leaf for leaf in leaves]


def merged(around, ours, theirs):
    """(the results of a condition, its open numbers): sizes and whole numbers that differ between the branches are open."""
    made, fresh = [], {}

    def number(a, b, what):
        if str(a) == str(b):
            return a
        if (str(a), str(b)) not in fresh:
            ends = {"least": min(a, b), "greatest": max(a, b)} if type(a) is type(b) is int else {}
            fresh[str(a), str(b)] = _env(around, what).create_unbacked_symint(**ends)
        return fresh[str(a), str(b)]

    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, mica.Tensor):
            made.append(_merged_tensor(around, a, b, number))
        elif type(a) is type(b) and not isinstance(a, mica.SymInt) and a == b:
            made.append(a)
        elif _is_counter(a):
            made.append(number(a, b, "torch.cond: the branches return different whole numbers"))
        else:
            raise RuntimeError(
                f"torch.cond: the branches return {a!r} and {b!r}, and only whole numbers and tensors may differ"
            )
    return made, [each for each in fresh.values() if isinstance(each, mica.SymInt)]


def _merged_tensor(around, a, b, number):
    """A tensor that stands for the results of both branches."""
    if kinds([a]) == kinds([b]):
        return a
    sizes = [number(*pair, "torch.cond: the branches return tensors of different sizes") for pair in _sizes(a, b)]
    if not hasattr(around, "unseen"):  # torch._dynamo.export
        return around.aside(_contiguous, (a, b, sizes), {})
    with around.unseen():
        return _contiguous(a, b, sizes)


def _contiguous(a, b, sizes):
    if not a.is_contiguous() or not b.is_contiguous():
        raise NotImplementedError(
            "torch.cond: the branches return tensors of different sizes, one of which is not contiguous. contiguous() makes "
            "one that is"
        )
    return a.new_empty(tuple(sizes))


def _sizes(a, b):
    return zip(a.shape, b.shape, strict=True)


def fit(ours, theirs):
    """Whether the results of two branches are of the same kinds: tensors may differ in their sizes."""

    def kind(leaf):
        if isinstance(leaf, mica.Tensor):
            return leaf.dim(), leaf.dtype, leaf.device
        return int if isinstance(leaf, mica.SymInt) else type(leaf)

    return [*map(kind, ours)] == [*map(kind, theirs)]


def _is_counter(leaf):
    return isinstance(leaf, (int, mica.SymInt)) and not isinstance(leaf, bool)
