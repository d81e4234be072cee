"""Products: what is contracted and split makes terms of a sum."""

from mica.distributed.tensor._rules.call import REPLICATE
from mica.distributed.tensor.placement_types import Partial, Shard

_SUM = Partial("sum")


def contraction(call, inputs, output, added=0):
    """Options of a product that is written as for einsum. The first `added` inputs are added to the product."""
    letters = dict.fromkeys(letter for each in inputs for letter in each)
    for letter in letters:
        if any(each.count(letter) > 1 for each in (*inputs, output)):
            continue  # a diagonal
        kept = letter in output
        given = []
        for i, each in enumerate(inputs):
            if letter in each:
                given.append(Shard(each.index(letter)))
            else:
                given.append(_SUM if i < added and not kept else REPLICATE)
        yield (Shard(output.index(letter)) if kept else _SUM,), tuple(given)
    yield call.replicated()
    for i in range(added, len(inputs)):
        yield (_SUM,), tuple(_SUM if j == i or j < added else REPLICATE for j in range(len(inputs)))


def _without_ones(letters, shape, sizes):
    """The letters of an operand; a dimension of size one that is repeated has none of its own."""
    return "".join(
        letter if size == sizes.get(letter, size) else chr(0x1000 + i)
        for i, (letter, size) in enumerate(zip(letters, shape, strict=True))
    )


def contract(call, equation):
    """contract EQUATION: mk,kn->mn. An operand in brackets is added to the product."""
    left, output = equation.split("->")
    names = left.split(",")
    added = sum(each.startswith("(") for each in names)
    names = [each.strip("()") for each in names]
    sizes = dict(zip(output, call.metas[0].shape, strict=True))
    names = [
        _without_ones(each[len(each) - len(shape) :], shape, sizes) if i < added else each
        for i, (each, shape) in enumerate(zip(names, call.shapes, strict=True))
    ]
    yield from contraction(call, names, output, added)


_BATCH = "abcdefghijklpqrstuvw"


def linear(call):
    """linear: input (..., k), weight (n, k), and a bias (n) that is added."""
    lead = _BATCH[: len(call.shapes[0]) - 1]
    names, output = [lead + "x", "nx"], lead + "n"
    if len(call.shapes[1]) == 1:
        names, output = [lead + "x", "x"], lead
    if len(call.specs) == 2:
        yield from contraction(call, names, output)
        return
    for outs, (bias, *rest) in contraction(call, ["n", *names], output, 1):
        yield outs, (*rest, bias)


def matmul(call):
    """matmul: as torch.matmul takes its operands."""
    a, b = call.shapes
    left = ["x"] if len(a) == 1 else ["m", "x"]
    right = ["x"] if len(b) == 1 else ["x", "n"]
    batch = len(call.metas[0].shape) - (len(a) > 1) - (len(b) > 1)
    lead = _BATCH[:batch]
    output = lead + ("m" if len(a) > 1 else "") + ("n" if len(b) > 1 else "")
    sizes = dict(zip(lead, call.metas[0].shape, strict=False))
    names = []
    for shape, own in ((a, left), (b, right)):
        extra = len(shape) - len(own)
        mine = _without_ones(lead[batch - extra :], shape[:extra], sizes) if extra > 0 else ""
        names.append(mine + "".join(own))
    yield from contraction(call, names, output)


def einsum(call):
    """einsum: the call's own equation."""
    equation = call.values["equation"].replace(" ", "")
    if "..." in equation:
        yield call.replicated()
        return
    left, arrow, output = equation.partition("->")
    names = left.split(",")
    if not arrow:
        letters = "".join(names)
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    yield from contraction(call, names, output)


WORDS = {"contract": contract, "linear": linear, "matmul": matmul, "einsum": einsum}
