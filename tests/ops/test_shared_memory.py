"""Operations that read and write parts of one tensor: parts without a common element are computed in place, and where
elements are shared the result is that of separate memory."""

import itertools

import mica
import pytest


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (lambda x: x[:, 1], lambda x: x[:, 0]),
        (lambda x: x[:, ::2], lambda x: x[:, 1::2]),
        (lambda x: x[::2], lambda x: x[1::2]),
        (lambda x: x.view(-1)[1::2], lambda x: x.view(-1)[::2]),
        (lambda x: x.view(2, 2, 3, 2)[:, :, :, 1], lambda x: x.view(2, 2, 3, 2)[:, :, :, 0]),
        (lambda x: x[:, 1:], lambda x: x[:, :-1]),
        (lambda x: x[:, :4], lambda x: x[:, :4].t()),
        (lambda x: x, lambda x: x[:, 0:1]),
    ],
)
def test_parts_of_one_tensor(written, read):
    x = mica.arange(1.0, 25.0).reshape(4, 6)
    expected = x.clone()
    written(expected).mul_(read(x).clone())
    written(x).mul_(read(x))
    assert mica.equal(x, expected)
    mica.add(written(x), read(x), out=written(x))
    written(expected).add_(read(expected).clone())
    assert mica.equal(x, expected)


@pytest.mark.parametrize(
    "call", [lambda x: x[1:].add_(x[:-1]), lambda x: x.add_(x[0]), lambda x: x.view(-1)[1:].mul_(x.view(-1)[:-1])]
)
def test_memory_that_both_cover_without_gaps_is_refused(call):
    x = mica.ones(4, 6)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        call(x)
    assert x.sum() == 24


def test_common_elements_are_found_in_every_geometry():
    base = mica.arange(40.0)
    for sizes, strides in itertools.product([(3, 2), (2, 3)], itertools.product([1, 2, 3, 5, 7], repeat=2)):
        for offset in range(8):
            target = base.clone()
            written = target.as_strided(sizes, strides, 0)
            if len({i * strides[0] + j * strides[1] for i in range(sizes[0]) for j in range(sizes[1])}) < 6:
                continue
            expected = target.clone()
            expected.as_strided(sizes, strides, 0).copy_(base.as_strided(sizes, strides, offset))
            written.copy_(target.as_strided(sizes, strides, offset))
            assert mica.equal(target, expected), (sizes, strides, offset)
