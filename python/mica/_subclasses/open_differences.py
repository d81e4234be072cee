"""Sizes that are a number less an open size, as that of torch.zeros(16 - n): below zero in the worlds, whose sizes are large.

Such a difference has numbers of its own in the worlds, those of max(0, 16 - n), and that it is not below zero is relied
on, or asserted where only data decide it. A program sees 16 - n, and n + (16 - n) is 16.
"""

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica._subclasses.open_views import stated
from mica.fx.experimental._expressions import Expression, make, maximum
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["as_sizes", "joined", "seen"]

_STEPS = ((), (1,), (-1,))  # further arguments of arange where the number of elements is a difference


def as_sizes(env, name, args, kwargs):
    """The arguments of an operator with numbers that can be sizes in the place of differences; None where there are none."""
    if name == "arange" and len(args) >= 2 and all(type(each) is int for each in args[:2]) and args[2:] in _STEPS:
        start, end = (make(env.worlds.known(each)) for each in args[:2])
        step = args[2] if len(args) > 2 else 1
        count = _as_size(env, (end - start) * step)
        return None if count is None else ((0, count * step, *args[2:]), kwargs)
    leaves, spec = tree_flatten((args, kwargs))
    numbers = {}
    for leaf in leaves:
        known = env.worlds.known(leaf) if type(leaf) is int and leaf < 0 else leaf
        number = _as_size(env, known) if isinstance(known, Expression) else None
        if number is not None:
            numbers[leaf] = number
    if not numbers:
        return None
    return tree_unflatten([numbers.get(leaf, leaf) if type(leaf) is int else leaf for leaf in leaves], spec)


def _as_size(env, difference):
    """The first world's number of a difference as a size; None where it cannot be one."""
    difference = env.replace(difference)
    if difference.is_number or env.worlds.number(difference) >= 0 or not stated(env, ">=", difference, 0):
        return None
    env.differences[difference] = maximum(make(0), difference)
    return env.worlds.noted(env.differences[difference])


def seen(env, expr):
    """An expression as a program sees it: with the differences in the place of what they are in the worlds."""
    if not env.differences:
        return expr
    own = {env.replace(size): env.replace(difference) for difference, size in env.differences.items()}
    total = make(0)
    for atoms, factor in expr.terms.items():
        product = make(factor)
        for atom in atoms:
            atom = Expression({(atom,): 1})
            product *= own.get(atom, atom)
        total += product
    return total


def joined(mode, fake):
    """A result where sizes and differences make up sizes that the worlds know by other numbers, with those."""
    env, sizes = mode.shape_env, fake.__dict__.get("_sizes")
    if sizes is None or not env.differences:
        return fake
    plain = [size if isinstance(size, int) else seen(env, env.replace(size)) for size in sizes]
    plain = [size.number if isinstance(size, Expression) and size.is_number else size for size in plain]
    usable = [
        a if isinstance(a, int) or min(env.worlds.vector(a)) > 0 else b for a, b in zip(plain, sizes, strict=True)
    ]
    if usable == list(sizes):
        return fake
    order = open_sizes._dense_order(fake) or list(range(fake.dim()))
    with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
        meta, *others = open_sizes.with_strides(usable, order, env, fake.dtype)
    made = mica._subclasses.fake_tensor._as_fake(meta, mode, fake.fake_device)
    return made if all(isinstance(size, int) for size in usable) else open_sizes.attach(made, tuple(usable), others)
