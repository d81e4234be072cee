"""What functions that conditions and loops call may not do: change what they are given, return it, or return other kinds.

torch finds that out as it captures such a function. Here it is seen as the function runs, so that a program which torch
refuses is refused too, with torch's error.
"""

import mica
from mica import _C
from mica._dynamo.exc import UncapturedHigherOrderOpError
from mica.utils._pytree import tree_leaves

__all__ = [
    "check_alike",
    "check_tensors",
    "differ_in_kind",
    "differ_in_number",
    "refuse",
    "refuse_endless",
    "texts",
    "watched",
]


def refuse(name, words):
    """Raise torch's error for a function that a graph could not hold."""
    raise UncapturedHigherOrderOpError(
        "This higher order operator doesn't work unless it is captured completely with torch.compile. Got graph break/error:"
        f"\n\n{words}\n\n  Higher Order Operator: {name}"
    )


def refuse_endless(name):
    """Raise torch's error for a loop whose condition is always True."""
    refuse(name, "Infinite loop detected because while_loop's cond_fn always returns the same value True.")


def watched(name, function):
    """The function of a condition or a loop, with errors where it changes its arguments in place or returns them."""

    def called(*args):
        given = [leaf for leaf in tree_leaves(args) if _is_plain(leaf)]
        versions = [_version(leaf) for leaf in given]
        result = function(*args)
        for i, (leaf, version) in enumerate(zip(given, versions, strict=True)):
            kind, count = _version(leaf)
            if kind is version[0] and count != version[1]:
                refuse(
                    name,
                    f"Higher order ops do not support input mutation. The function changes tensor {i} of its arguments in "
                    "place; it can change a clone() of it.",
                )
        _check_aliases(name, given, result)
        return result

    return called


def _check_aliases(name, given, result):
    known = {}
    for i, leaf in enumerate(given):
        known.setdefault(_memory(leaf), f"tensor {i} of its arguments")
    for i, leaf in enumerate(filter(_is_plain, tree_leaves(result))):
        other = known.setdefault(_memory(leaf), f"tensor {i} of its results")
        if other != f"tensor {i} of its results":
            refuse(
                name,
                f"Higher order ops do not support aliasing. Tensor {i} of the function's results has the memory of {other}; "
                "a clone() of it has memory of its own.",
            )


def _is_plain(leaf):
    return isinstance(leaf, _C.TensorBase) and leaf.layout is mica.strided and not hasattr(leaf, "_batch_value")


def _memory(tensor):
    with _C.DisableTorchFunction():
        return _C.TensorBase.untyped_storage(tensor)._cdata


def _version(tensor):
    """How often a tensor was changed. Where a promise of a captured function has become its value, that is not known."""
    with _C.DisableTorchFunction():
        return type(tensor), None if tensor.is_inference() else tensor._version


def check_tensors(name, result):
    """Raise an error unless a function has returned tensors alone."""
    for leaf in tree_leaves(result):
        if not isinstance(leaf, _C.TensorBase):
            refuse(name, f"Expected all leaves to be of torch.Tensor type, but the function returns {leaf!r}.")


def check_alike(words, one, other):
    """Raise torch's error unless two lists have values of the same kinds: what a loop carries has one kind.

    Args:
        words: torch's words for the lists: "init and carry"
        one, other: the lists
    """
    if len(one) != len(other):
        differ_in_number(words, one, other)
    found = [_difference(i, *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    if any(found):
        differ_in_kind(words, "\n".join(filter(None, found)))


def differ_in_number(words, one, other):
    """Raise torch's error for lists of different lengths."""
    raise UncapturedHigherOrderOpError(
        f"Expected {words} to have same number of outputs but got lhs:[{texts(one)}] and rhs:[{texts(other)}]"
    )


def differ_in_kind(words, found):
    """Raise torch's error for values of other kinds."""
    raise UncapturedHigherOrderOpError(f"Expected {words} to have same metadata but found:\n{found}")


def _difference(place, one, other):
    if _kind(one) == _kind(other):
        return None
    return f"pair[{place}] differ: lhs is {_text(one)} and rhs is {_text(other)}"


def _kind(value):
    if isinstance(value, _C.TensorBase):
        return (tuple(value.shape), value.dtype, value.device)
    return int if isinstance(value, (int, mica.SymInt)) else type(value)


def texts(values):
    """Values in an error's text, which names no numbers of tensors: a captured function would have to compute them."""
    return ", ".join(map(_text, values))


def _text(value):
    if isinstance(value, _C.TensorBase):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype} on {value.device}"
    return repr(value)
