"""Operators without changes in place that compute what others write, and the dtypes of their results."""

import mica
from mica.fx.node import map_arg
from mica.utils._pytree import tree_map_only

__all__ = [
    "PLACE", "functional_overload", "functional_target", "natural_dtypes", "place_in", "target_without_out",
    "with_defaults",
]  # fmt: skip

PLACE = ("size", "stride", "storage_offset")  # of a view in the memory of its base

_OPEN = (mica.SymInt, mica.SymFloat, mica.SymBool)  # numbers that are not to be asked for
_REFUSED = frozenset(["resize_", "set_", "resize_as_"])


def functional_target(target):
    """The operator that computes what another one writes in place; its result is the new value of the first argument."""
    name, overload = target._overloadpacket.__name__, target._overloadname
    twins = {"zero_": ("zeros_like", "default"), "fill_": ("fill", overload), "copy_": ("copy", "default"),
             "normal_": ("normal_functional", "default")}  # fmt: skip
    twin, overload = twins.get(name, (name.removesuffix("_"), overload))
    packet = getattr(getattr(mica.ops, target.namespace), twin, None)
    if packet is not None and overload not in packet.overloads():  # bernoulli_.float is bernoulli.p
        overload = next((each for each in packet.overloads() if _takes_as(getattr(packet, each), target)), None)
    if name in _REFUSED or packet is None or overload is None or not name.endswith("_"):
        raise NotImplementedError(f"Mica's functionalize knows no operator that computes what {target} writes in place")
    return getattr(packet, overload)


def functional_overload(packet, target):
    """The overload of an operator that takes the arguments of one that changes a tensor."""
    name = target._overloadname
    return name if name in packet.overloads() else next(
        each for each in packet.overloads() if _takes_as(getattr(packet, each), target)
    )  # fmt: skip


def _takes_as(found, target):
    """Whether an operator takes the arguments of another one."""
    ours, theirs = ([(a.name, str(a.type)) for a in each._schema.arguments] for each in (found, target))
    return ours == theirs


def with_defaults(args, kwargs, target, found):
    """Positional arguments, with those that were left out and that the other operator has no default for."""
    args = list(args)
    for ours, theirs in list(zip(target._schema.arguments, found._schema.arguments, strict=False))[len(args) :]:
        if ours.kwarg_only or ours.name in kwargs or not ours.has_default_value() or theirs.has_default_value():
            break
        args.append(ours.default_value)
    return tuple(args)


def target_without_out(target, outs):
    """The overload that takes the same arguments but for those that are written to; None where there is none."""
    wanted = [(a.name, str(a.type)) for a in target._schema.arguments if a.name not in outs]
    packet = target._overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        if not overload._schema.is_mutable and [(a.name, str(a.type)) for a in overload._schema.arguments] == wanted:
            return overload
    return None


def natural_dtypes(target, args, kwargs):
    """The dtypes of an operator's results for arguments of a graph. They are asked of tensors on the meta device.

    Where these do not say it, the first result is taken to have the dtype of the first tensor.
    """
    try:
        given, named = tree_map_only(_OPEN, lambda number: 1, (map_arg(args, _example), map_arg(kwargs, _example)))
        made = target(*given, **named)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        found = []
        map_arg((args, kwargs), lambda node: found.append(getattr(node.meta.get("val"), "dtype", None)))
        return tuple([dtype for dtype in found if dtype is not None][:1])
    return tuple(each.dtype for each in (made if isinstance(made, (list, tuple)) else (made,)))


def _example(node):
    """What stands for a node's value: a tensor of the same dtype and, if they are numbers, sizes; or one."""
    value = node.meta.get("val")
    if not isinstance(value, mica.Tensor):
        return value
    are_numbers = all(isinstance(size, int) for size in value.shape)
    return mica.empty(tuple(value.shape) if are_numbers else (1,) * value.dim(), dtype=value.dtype, device="meta")


def place_in(root, chain):
    """The sizes, strides and offset of a view, by a chain of view operators, in a dense tensor of the root's sizes."""
    value, made = root.meta["val"], None
    if all(isinstance(size, int) for size in value.shape):
        try:
            made = mica.empty(tuple(value.shape), dtype=value.dtype, device="meta")
            for step in chain:
                made = step.target(made, *step.args, **step.kwargs)
                made = made if step.item is None else made[step.item]
        except (RuntimeError, TypeError):
            made = None
    if made is None:
        raise NotImplementedError(
            "Mica's functionalize: an operator changes two views of one tensor, whose sizes are open or which are no "
            "views of a dense one"
        )
    return list(made.shape), list(made.stride()), made.storage_offset()
