"""Fake tensors with open sizes: one tensor on the meta device for every world of the ShapeEnv (fx/experimental/_worlds.py).

The tensor itself is the first world's. `_sizes` holds its sizes as numbers and expressions, `_others` the tensors of the
other worlds. A tensor without them has the same sizes in every world.
"""

import math

import mica
from mica import _C
from mica.fx.experimental import _expressions as expressions
from mica.fx.experimental._worlds import FEW_OPEN
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["attach", "engine_values", "open_input", "run", "shape_of"]


# Functions whose results' sizes follow from numbers that are not whole.
NEEDS_NUMBERS = frozenset(["arange", "range", "interpolate", "upsample"])


class OpenSize(tuple):
    """The sizes of a tensor, some of which are open: what torch.Size is for numbers."""

    __slots__ = ()

    def numel(self):
        return math.prod(self)

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return OpenSize(found) if isinstance(index, slice) else found

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"


def engine_values(values, needs_numbers=True):
    """Arguments as the engine takes them: open sizes as the first world's numbers.

    Floats that follow from open sizes are those of the example, which fixes the sizes, unless any will do.
    """

    def plain(value):
        if isinstance(value, mica.SymBool):
            value = number_of_truth(value)
        if isinstance(value, mica.SymInt):
            env = value.node.shape_env
            return env.worlds.noted(env.replace(value.node._expr))
        if isinstance(value, OpenSize):  # which pytrees take for a leaf
            return tuple(map(plain, value))
        if isinstance(value, mica.SymFloat):
            # For a number that only data decide, any value will do: no rule of shapes asks for it (NEEDS_NUMBERS).
            is_example = needs_numbers and value.node.has_hint()
            return float(value) if is_example else value.node.shape_env.stand_in(value)
        return slice(*map(plain, (value.start, value.stop, value.step))) if isinstance(value, slice) else value

    return tree_map(plain, values)


def number_of_truth(truth):
    """A truth that a tensor holds as 0 or 1, as that number; another one as it is."""
    relation = truth.node._expr
    is_held = getattr(relation, "sign", None) == "==" and relation.left.is_symbol and relation.right == 1
    return mica.SymInt(type(truth.node)(relation.left, truth.node.shape_env, int)) if is_held else truth


def own_sizes(tensor):
    """The sizes of a tensor as numbers and expressions."""
    return tensor.__dict__.get("_sizes") or tuple(_C.TensorBase.size(tensor))


def shape_of(fake, env):
    """The sizes of a fake tensor as a program sees them."""
    sizes = fake.__dict__.get("_sizes")
    if sizes is None:
        return None
    return tuple(size if isinstance(size, int) else shown(size, env) for size in sizes)


def shown(size, env):
    """An expression as a program sees it: a SymInt, unless the environment says otherwise."""
    made = env.create_symintnode(size)
    return made if env.shown is None or isinstance(made, int) else env.shown(made)


def _dense_order(tensor):
    """The dimensions from the slowest to the fastest, if the tensor has no gaps; None otherwise."""
    order = sorted(range(tensor.dim()), key=lambda i: (-tensor.stride(i), i))
    expected = 1
    for i in reversed(order):
        if tensor.size(i) != 1 and tensor.stride(i) != expected:
            return None
        expected *= max(tensor.size(i), 1)
    return order


def _strides(sizes, order):
    strides, step = [0] * len(sizes), 1
    for i in reversed(order):
        strides[i] = step
        step *= max(sizes[i], 1)
    return strides


def most_open(value):
    """How many sizes of a tensor may be open."""
    is_plain = isinstance(value, _C.TensorBase) and not value.is_nested
    return sum(size > 1 for size in value.shape) if is_plain else 0


def open_input(tensor, env, symbolic_context=None, source=None):
    """(tensor of the first world, its sizes, those of the others) for a real tensor whose sizes are left open."""
    from mica.fx.experimental.symbolic_shapes import DimDynamic

    order = _dense_order(tensor)
    if order is None:
        return None
    marked = getattr(tensor, "_dynamo_dynamic_indices", None) or set()
    ranges = getattr(tensor, "_dynamo_dynamic_range", None) or {}
    kinds, sizes = list(getattr(symbolic_context, "dynamic_sizes", ()) or ())[: tensor.dim()], []
    for i in range(len(kinds), tensor.dim()):
        is_static = env.assume_static_by_default and i not in marked
        kinds.append(DimDynamic.STATIC if is_static else DimDynamic.DYNAMIC if i in marked else DimDynamic.DUCK)
    if sum(kind is not DimDynamic.STATIC for kind in kinds) > FEW_OPEN:
        env.worlds.begin_small()
    for i, (size, kind) in enumerate(zip(tensor.shape, kinds, strict=True)):
        low, high = ranges.get(i, (None, None))
        expr = env.create_symbol(size, source, kind, least=low, greatest=high)
        sizes.append(expr.number if expr.is_number else expr)
    if all(isinstance(size, int) for size in sizes):
        return None
    made = with_strides(sizes, order, env, tensor.dtype)
    return made[0], tuple(sizes), made[1:]


def with_strides(sizes, order, env, dtype):
    """The tensors of all worlds for sizes that are known as expressions, with the dimensions in an order."""
    made = []
    for world in range(len(env.worlds)):
        numbers = [env.worlds.number(size, world) for size in sizes]
        try:
            made.append(_C.empty_strided(numbers, _strides(numbers, order), dtype=dtype, device="meta"))
        except (RuntimeError, ValueError) as error:  # of 64 bits in memory, or as numbers
            ask_for_smaller("an input", env, error)
            raise NotImplementedError(
                f"the open sizes of one tensor are too many, or too large multiples, for Mica: {error}"
            ) from None
    return made


def of_sizes(sizes, env, dtype):
    """(tensor of the first world, its sizes, those of the others) for sizes that are known as expressions."""
    made = [
        _C.empty([env.worlds.number(size, world) for size in sizes], dtype=dtype, device="meta")
        for world in range(len(env.worlds))
    ]
    return made[0], tuple(sizes), made[1:]


def attach(fake, sizes, others):
    fake._sizes, fake._others = sizes, others
    return fake


def _in_world(value, world, env):
    """An argument of the first world in another one."""
    if isinstance(value, _C.TensorBase):
        others = value.__dict__.get("_others") if hasattr(value, "__dict__") else None
        if others is not None:
            return others[world - 1]
        if type(value) is _C.Tensor:
            return value
        with _C.DisableTorchFunctionSubclass():
            return _C.Tensor.detach(value)
    if type(value) is int:
        return env.worlds.number(env.worlds.known(value), world)
    return value


def is_open(values, env):
    """Whether the result of a call with these arguments may have open sizes."""
    known = env.worlds.known
    return any(
        "_others" in getattr(leaf, "__dict__", ()) or (type(leaf) is int and not isinstance(known(leaf), int))
        for leaf in tree_leaves(values)
    )


def run(mode, func, args, kwargs):
    """(the result in the first world, [those of the others]) of an operator."""
    env = mode.shape_env
    leaves, spec = tree_flatten((args, kwargs))
    made, others = func(*args, **kwargs), []
    for world in range(1, len(env.worlds)):
        inner_args, inner_kwargs = tree_unflatten([_in_world(leaf, world, env) for leaf in leaves], spec)
        others.append(func(*inner_args, **inner_kwargs))
    return made, others


class NoExpression(NotImplementedError):
    """The sizes of a result are none of the expressions that Mica knows."""


class NeedsStatic(Exception):
    """An operation does not work for open sizes: `presets` says which are to be static, or equal to another one."""

    def __init__(self, presets, func, error):
        super().__init__(f"{func} works only if {', '.join(f'{k} == {v}' for k, v in presets.items())}: {error}")
        self.presets, self.func, self.error = presets, func, error


SMALLER = "smaller"  # the preset of traces whose worlds have smaller numbers


def ask_for_smaller(func, env, error):
    """Let the trace begin anew with smaller numbers if those of the worlds are too large together."""
    begins_anew = env.takes_relations or env.takes_multiples
    too_large = isinstance(error, OverflowError) or "overflow" in str(error).lower()
    if begins_anew and not env.worlds.is_small and too_large:
        raise NeedsStatic({SMALLER: True}, func, error) from error


def near_windows(sizes, kernel_size, dilation=1, padding=0, stride=1):
    """How many windows an image of open sizes has, which is a product of quotients (im2col)."""

    def pair(value):
        return (value, value) if isinstance(value, int) else tuple(value) * (2 // len(value))

    made = expressions.make(1)
    for size, k, d, p, s in zip(sizes, *map(pair, (kernel_size, dilation, padding, stride)), strict=True):
        made = made * (
            expressions.floordiv(expressions.make(size) + (2 * p - d * (k - 1) - 1), expressions.make(s)) + 1
        )
    return made


def near_sizes(values, env):
    """The expressions that the sizes of a result may be made of: those of the arguments."""
    found = []
    for leaf in tree_leaves(values):
        sizes = getattr(leaf, "__dict__", {}).get("_sizes")
        if sizes is not None:
            found += [size for size in sizes if not isinstance(size, int)]
            found.append(math.prod(sizes[1:], start=sizes[0]))
        elif type(leaf) is int and not isinstance(known := env.worlds.known(leaf), int):
            found.append(known)
    return [each for each in dict.fromkeys(found) if not isinstance(each, int)]


def result(tensor, others, near, env, func):
    """Note the open sizes of a result, which is on the meta device in every world."""
    if any(other.dim() != tensor.dim() for other in others):
        raise NotImplementedError(f"{func}: the number of dimensions depends on an open size")
    sizes = []
    for axis in range(tensor.dim()):
        vector = (_C.TensorBase.size(tensor, axis), *(_C.TensorBase.size(other, axis) for other in others))
        size = env.worlds.fitting(vector, near)
        if size is None:
            raise NoExpression(
                f"{func}: Mica finds no expression for size {axis} of the result in the open sizes of its arguments"
            )
        sizes.append(size)
    if any(not isinstance(size, int) for size in sizes):
        attach(tensor, tuple(sizes), others)
    return tensor


def sized(mode, like, sizes, dtype):
    """A fake tensor of sizes that are known as expressions, on the device of another one."""
    sizes = [size.number if isinstance(size, expressions.Expression) and size.is_number else size for size in sizes]
    with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
        meta, sizes, others = of_sizes(sizes, mode.shape_env, dtype)
    fake = mica._subclasses.fake_tensor._as_fake(meta, mode, like.fake_device)
    return fake if all(isinstance(size, int) for size in sizes) else attach(fake, sizes, others)


def known_result(tensor, env):
    """Give open sizes to a result whose operator was not seen. They are recognised by their numbers."""
    sizes = tuple(env.worlds.known(size) for size in _C.TensorBase.size(tensor))
    if any(not isinstance(size, int) for size in sizes):
        with mica.utils._python_dispatch._disable_current_modes():
            _, sizes, others = of_sizes(sizes, env, tensor.dtype)
        attach(tensor, sizes, others)
    return tensor
