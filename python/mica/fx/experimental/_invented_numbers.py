"""Whether a graph with open sizes relies on the numbers that were invented for them (_worlds.py).

An operation that is composed of others may compute a number of a size, half of it for one, or choose by it. Its operators
then have the number or the choice of the first world, so that the call is recorded as a whole instead. What is left is
found by making the graph a second time with other invented numbers, and refused.
"""

from mica._functions.families import own_name
from mica.utils._pytree import tree_leaves

__all__ = ["are_in", "check", "has_large"]

_SMALL = 0.05  # roots of invented numbers are below it

# They cut off or pad by what a size is.
_CHOOSING = {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", "fftn",
             "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"}  # fmt: skip


def _numbers(value):
    return [leaf for leaf in tree_leaves(value) if type(leaf) is int]


def _shares(value):
    """Small numbers of many digits, as a share or the root of a size is, and 1e-5 is not."""
    floats = [leaf for leaf in tree_leaves(value) if type(leaf) is float and 0 < abs(leaf) < _SMALL]
    return [leaf for leaf in floats if not _is_short(leaf, 6)]


def _is_short(number, digits=3):
    return abs(number - float(f"{number:.{digits}g}")) <= 1e-9 * abs(number)


def _is_invented(share, env):
    """Whether a number is a share of an invented one, or of its root: 0.1 / n, n ** -0.5."""
    return any(_is_short(share * n) or _is_short(share * share * n) for n, _ in env.worlds.numbers())


def _least(env):
    """Halves, quarters and shares of invented numbers are above it."""
    return env.worlds.large // 4


def are_in(nodes, func, args, kwargs, env):
    """Whether the operators of a call have numbers that it was not given, or were chosen by invented ones."""
    if (own_name(func) or "").removeprefix("fft_") in _CHOOSING and (len(args) > 1 or kwargs.keys() & {"n", "s"}):
        return True
    given, least = set(_numbers((args, kwargs))), _least(env)
    shares = {share for node in nodes if node.op == "call_function" for share in _shares((node.args, node.kwargs))}
    if any(_is_invented(share, env) for share in shares.difference(_shares((args, kwargs)))):
        return True
    return any(
        abs(number) > least and abs(number) < 2**31 and number not in given
        for node in nodes
        if node.op == "call_function"
        for number in _numbers((node.args, node.kwargs))
    )


def _facts(graph):
    """[(node, the whole numbers and the shares among its arguments, sizes of its result that are no expressions)]."""
    found = []
    for node in graph.nodes:
        sizes = getattr(node.meta.get("val"), "__dict__", {}).get("_sizes") or ()
        given = (node.args, node.kwargs) if node.op == "call_function" else ()
        numbers = [*_numbers(given), *_shares(given)]
        found.append((node, numbers, [size for size in sizes if isinstance(size, int)]))
    return found


def has_large(made, env):
    """Whether a graph has numbers or sizes that may have been made of invented ones."""
    return any(
        abs(each) > _least(env) or (type(each) is float and _is_invented(each, env))
        for _, numbers, sizes in _facts(made.graph)
        for each in (*numbers, *sizes)
    )


def check(made, again):
    """Refuse a graph whose numbers are others where other numbers were invented."""
    first, second = _facts(made.graph), _facts(again.graph)
    same = [node.target for node, *_ in first] == [node.target for node, *_ in second]
    for (node, *ours), (_, *theirs) in zip(first, second, strict=False):
        if not same or ours != theirs:
            raise NotImplementedError(
                f"make_fx(tracing_mode='symbolic'): {node.target} depends on an open size in a way that Mica does not see. "
                "Trace it with tracing_mode='fake', where sizes are those of the example"
            )
