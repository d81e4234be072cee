"""Tangents through functions that have a `jvp` of their own.

Tangents are pushed forwards by two backward passes: the first computes vector times Jacobian, the second the derivative of
that by the vector, in the direction of the tangents. The vector is zero, so that the first pass needs no numbers of a
function but zeros, whose derivative is what its `jvp` says.
"""

from mica import _C
from mica.autograd.function import Function

__all__ = ["transposed"]


def transposed(ctx, function, places, blanks, related, without, vectors):
    """The first pass through a function: for each argument zeros that lead to `jvp`, None where none are wanted.

    Args:
        ctx: the context of the call
        function: its class
        places: zeros like each argument that leads to a tangent, None for the others
        blanks: zeros like the other tensors that could have one
        related: (output, argument, whether in place) of outputs that are an argument or a view of it
        without: the outputs that have no derivative
        vectors: what came in for the outputs
    """
    wanted = [i for i, place in enumerate(places) if place is not None]
    made = _Transposed.apply((ctx, function, places, blanks, related, without), *vectors)
    result = [None] * len(places)
    for i, each in zip(wanted, made if isinstance(made, tuple) else (made,), strict=True):
        result[i] = each
    return tuple(result)


class _Transposed(Function):
    @staticmethod
    def forward(ctx, call, *vectors):
        ctx.call, ctx.count = call, len(vectors)
        ctx.set_materialize_grads(False)
        return tuple(place for place in call[2] if place is not None)

    @staticmethod
    def backward(ctx, *tangents):
        return (None, *_pushed(ctx.call, ctx.count, tangents))


def _pushed(call, count, tangents):
    """What jvp returns for tangents of the arguments, after torch's checks."""
    ctx, function, places, blanks, related, without = call
    given = list(blanks)
    for i, tangent in zip((i for i, place in enumerate(places) if place is not None), tangents, strict=True):
        given[i] = places[i] if tangent is None else tangent
    for _, argument, in_place in related:
        if in_place and given[argument] is not None:
            given[argument] = given[argument].clone()  # because jvp changes it
    ctx._in_jvp = True
    try:
        returned = function.jvp(ctx, *given)
    finally:
        ctx._in_jvp = False
    returned = returned if isinstance(returned, tuple) else (returned,)
    if len(returned) != count:
        raise RuntimeError(
            f"{function.__name__}.jvp returned an incorrect number of forward gradients (expected {count}, got "
            f"{len(returned)})"
        )
    for i in without:
        if returned[i] is not None:
            raise RuntimeError(
                f"{function.__name__}.jvp returned a tangent for output {i}, but the corresponding forward output is "
                "not a differentiable Tensor. You should return None at that position instead."
            )
    for output, argument, in_place in related:
        if given[argument] is not None and returned[output] is not None:
            _check(returned[output], given[argument], in_place)
    return returned


def _check(returned, given, in_place):
    if in_place:
        if returned is not given:
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
        return
    if not returned._is_view():
        raise RuntimeError(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
    if given._is_view():
        if returned._base is not given._base:
            raise RuntimeError(
                "A custom Function is returning a view but the jvp is not returning a view of the same base as the "
                "given grad input."
            )
    elif returned._base is not given:
        raise RuntimeError(
            "A custom Function is returning a view but the jvp is not returning a view of the given grad input."
        )


class pushing:
    """Within a `with` block, backward passes of this thread ask functions for their jvp."""

    def __enter__(self):
        self._before = _C._exchange_pushing_tangents(True)

    def __exit__(self, *exception):
        _C._exchange_pushing_tangents(self._before)
