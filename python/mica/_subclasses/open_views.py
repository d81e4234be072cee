"""Views and scaled images of fake tensors with open sizes, where the sizes of the result are known and the worlds cannot tell.

A view of what only data choose is of as many elements because the program says so, and that is asserted. One of sizes of inputs that
fits in the example, as x.view(n - 1, -1) may, is relied on. The sizes that a scale
makes of open ones are computed outside of the engine, which is handed their numbers.
"""

import math

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica._subclasses.open_sizes import own_sizes
from mica.fx.experimental._expressions import is_fractional, make, modulo
from mica.fx.experimental._facts_of_data import of_data
from mica.fx.experimental._rounding import rounded
from mica.fx.experimental._truths import Relation, solve

__all__ = ["VIEWS", "View", "note_scaled", "rely_on_fit", "stated"]

VIEWS = frozenset(["view", "reshape", "_unsafe_view", "expand"])


def stated(env, sign, left, right):
    """Whether something may hold. If only data decide it, it is believed and asserted; of sizes of inputs it becomes a guard,
    unless it says which number a size is."""
    truth = Relation.make(sign, env.replace(make(left)), env.replace(make(right)))
    if isinstance(truth, bool) or truth.decided(env) or env.is_stated(truth):
        return truth is not False
    if _is_of_data(truth):
        env.assume(truth)
        return True
    says_a_size = truth.sign == "==" and solve(truth)
    return not says_a_size and truth.value(env.var_to_val) and env.evaluate_expr(truth)


def _is_of_data(value):
    return bool(of_data(value))


class View:
    """A view whose sizes fit by what the program says, or in the example."""

    def __init__(self, mode, name, x, shape, *rest, **named):
        self._mode, self._name, self._x, env = mode, name, x, mode.shape_env
        self._own = own_sizes(x)
        is_list = isinstance(shape, (list, tuple)) and all(type(each) is int for each in shape)
        self._sizes = [env.worlds.known(each) for each in shape] if is_list else None
        self.is_of_data = any(_is_of_data(make(each)) for each in (*self._own, *(self._sizes or ())))

    def depends_on_several(self):
        """Whether it takes several open sizes to say that the elements fit: n * m rows of a number, but not n rows of m."""
        if self._sizes is None or self._sizes.count(-1) != 1 or self.is_of_data:
            return False
        above, below = (
            [atom for each in sizes if each != -1 for atoms in make(each).terms for atom in atoms]
            for sizes in (self._own, self._sizes)
        )
        for atom in list(below):
            if atom in above:
                above.remove(atom)
                below.remove(atom)
        return len(above) > 1

    def result(self):
        """The tensor; None where it cannot be known."""
        env, own, x, is_expanded = self._mode.shape_env, self._own, self._x, self._name == "expand"
        if self._sizes is None or not (self.is_of_data or (env.takes_relations and not is_expanded)):
            return None
        sizes = _expanded(env, own, self._sizes) if is_expanded else _rearranged(env, own, self._sizes)
        if sizes is None:
            return None
        if not is_expanded:
            return open_sizes.sized(self._mode, x, sizes, x.dtype)
        sizes = tuple(each if isinstance(each, int) else each.number if each.is_number else each for each in sizes)
        with mica.utils._python_dispatch._disable_current_modes(), _C.DisableTorchFunction():
            meta, *others = _repeated(env, own, sizes, x.dtype)
        return open_sizes.attach(mica._subclasses.fake_tensor._as_fake(meta, self._mode, x.fake_device), sizes, others)


def _repeated(env, own, sizes, dtype):
    """The tensors of all worlds of an expanded one: what is repeated has no steps."""
    is_repeated = [True] * (len(sizes) - len(own)) + [size == 1 for size in own]
    made = []
    for world in range(len(env.worlds)):
        numbers = [env.worlds.number(size, world) for size in sizes]
        once = [1 if repeats else number for number, repeats in zip(numbers, is_repeated, strict=True)]
        made.append(_C.Tensor.expand(_C.empty(once, dtype=dtype, device="meta"), numbers))
    return made


def _rearranged(env, own, sizes):
    total = math.prod(map(make, own), start=make(1))
    known = math.prod((make(each) for each in sizes if each != -1), start=make(1))
    if sizes.count(-1) > 1 or known == 0:
        return None
    if -1 not in sizes:
        return sizes if stated(env, "==", total, known) else None
    if not stated(env, "==", modulo(total, known), 0):
        return None
    return [total // known if each == -1 else each for each in sizes]


def _expanded(env, own, sizes):
    if -1 in sizes[: len(sizes) - len(own)] or len(sizes) < len(own):
        return None
    made = list(sizes)
    for i, size in enumerate(own, len(sizes) - len(own)):
        if sizes[i] == -1:
            made[i] = size
        elif size != 1 and not stated(env, "==", size, sizes[i]):
            return None
    return made


def rely_on_fit(mode, name, args, kwargs):
    """Rely on it that a mask of attention, or numbers of repeats, fit: the engine's rule of shapes does not look at them, or
    looks at their values first."""
    rule = {"scaled_dot_product_attention": _scores, "repeat_interleave": _repeats}.get(name)
    rule = rule if mode.shape_env.takes_relations else None  # elsewhere sizes that are equal in the example are equal
    found = rule(*args, **kwargs) if rule is not None else None
    if found is None:
        return
    sizes, like, other = found
    made = open_sizes.sized(mode, like, sizes, like.dtype)
    mode.__torch_dispatch__(mica.ops.aten.add.Tensor, (), (made, other))


def _scores(query, key, value, attn_mask=None, *rest, **named):
    if attn_mask is None or query.dim() < 2:
        return None
    return (*own_sizes(query)[:-1], own_sizes(key)[-2]), query, attn_mask


def _repeats(input=None, repeats=None, dim=None, **named):
    x = named.get("self", input)
    is_list = isinstance(repeats, _C.TensorBase) and repeats.dim() == 1 and own_sizes(repeats)[0] != 1
    if not is_list or not isinstance(x, mica.Tensor) or not hasattr(x, "fake_device") or not x.dim():
        return None
    sizes = own_sizes(x)
    return (math.prod(map(make, sizes), start=make(1)) if dim is None else sizes[dim],), x, repeats


def note_scaled(env, func, args, kwargs):
    """Let the numbers of the sizes that an image is scaled to be known as what the scales make of the open sizes."""
    names = [a.name for a in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    if "self" not in given:
        return  # a backward pass is told the sizes
    sizes = given["self"].__dict__.get("_sizes", ())[2:]
    scales = [value for name, value in given.items() if name.startswith("scales_")]
    if not sizes or len(scales) != len(sizes):
        return
    for size, scale, number in zip(sizes, scales, given["output_size"], strict=True):
        if not isinstance(size, int) and scale is not None and number == math.floor(env.worlds.number(size) * scale):
            _note_scale(env, func, size, scale)


def note_rescaled(
    env, input=None, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
    antialias=False,
):  # fmt: skip
    """The same for a call of interpolate that hands on the sizes alone, without the scales that they are made of."""
    if size is not None or scale_factor is None or not (recompute_scale_factor or mode == "area"):
        return
    sizes = getattr(input, "__dict__", {}).get("_sizes", ())[2:]
    scales = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * len(sizes)
    for size, scale in zip(sizes, scales, strict=False):
        if not isinstance(size, int):
            _note_scale(env, mica.nn.functional.interpolate, size, scale)


def _note_scale(env, func, size, scale):
    made = rounded(env.replace(size) * make(scale), "floor", env._ranges)
    if made is not None and not is_fractional(made):
        env.worlds.noted(made)
        return
    hints = {name: env.var_to_val.get(name) for name in size.free_symbols}
    error = NotImplementedError(f"{func}: a scale of {scale} makes no expression of the open size {size}")
    if None in hints.values():
        raise error
    raise open_sizes.NeedsStatic({env.preset_key(name): hint for name, hint in hints.items()}, func, error)
