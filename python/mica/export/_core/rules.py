"""The rules by operator, and what they have in common."""

import functools

import mica

aten = mica.ops.aten
RULES = {}
LOW = (mica.float16, mica.bfloat16)


def decomposes(*names):
    def register(function):
        for name in names:
            packet, _, overload = name.partition(".")
            RULES[getattr(getattr(aten, packet), overload or "default")] = function
        return function

    return register


def in_float32(function):
    """Wraps a function so that it computes with 16-bit floats in float32."""

    @functools.wraps(function)
    def computed(x, *args, **kwargs):
        if x.dtype not in LOW:
            return function(x, *args, **kwargs)
        args = [widened(each) if isinstance(each, mica.Tensor) and each.dtype in LOW else each for each in args]
        made = function(widened(x), *args, **kwargs)
        return made if made is NotImplemented else aten._to_copy.default(made, dtype=x.dtype)

    return computed


def widened(x):
    return aten._to_copy.default(x, dtype=mica.float32)


def number_like(value, like):
    return aten.scalar_tensor.default(value, dtype=like.dtype, device=like.device)


def positions(n, like, dtype=mica.int64):
    return aten.arange.start_step(0, n, 1, dtype=dtype, device=like.device)


def sum_of_all(x):
    return aten.sum.dim_IntList(x, [])


def reduced_loss(loss, reduction):
    return loss if reduction == 0 else aten.mean.default(loss) if reduction == 1 else sum_of_all(loss)
