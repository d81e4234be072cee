"""Operations that read and write parts of one tensor: parts without a common element are computed in place, and where
elements are shared the result is that of separate memory, or a refusal."""

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


# torch 2.13 refuses all of these if the tensor that is read and the one that is written both cover their memory without
# gaps.
REFUSED = {
    "copy_ of a part": lambda x, at: x[1:].copy_(x[:-1]),
    "copy_ of the transposed": lambda x, at: x[:4].view(2, 2).t().copy_(x[:4].view(2, 2)),
    "copy_ of one element": lambda x, at: x.copy_(x[2]),
    "copy_ of another dtype": lambda x, at: x[:2].copy_(x.view(mica.int32)[1:3]),
    "a slice": lambda x, at: x.__setitem__(slice(1, None), x[:-1]),
    "an index": lambda x, at: x.__setitem__(at, x[:3]),
    "an index, one element": lambda x, at: x.__setitem__(at, x[0]),
    "a mask": lambda x, at: x.__setitem__(x > 3, x[:2]),
    "index_put_": lambda x, at: x.index_put_((at,), x[:3], accumulate=True),
    "index_put_, its index": lambda x, at: at.index_put_((at,), at.clone()),
    "index_copy_": lambda x, at: x.index_copy_(0, at, x[:3]),
    "index_copy_, its index": lambda x, at: at.index_copy_(0, at, at.clone()),
    "index_add_": lambda x, at: x.index_add_(0, at, x[:3]),
    "index_add_, its index": lambda x, at: at.index_add_(0, at, at.clone()),
    "index_reduce_": lambda x, at: x.index_reduce_(0, at, x[:3], "prod"),
    "scatter_": lambda x, at: x.scatter_(0, at, x[:3]),
    "scatter_, its index": lambda x, at: at.scatter_(0, at, 1),
    "scatter_add_": lambda x, at: x.scatter_add_(0, at, x[:3]),
    "scatter_reduce_": lambda x, at: x.scatter_reduce_(0, at, x[:3], "sum"),
    "put_": lambda x, at: x.put_(at, x[:3]),
    "_foreach_copy_": lambda x, at: mica._foreach_copy_([x[1:]], [x[:-1]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_read_must_not_be_what_is_written(name):
    x, at = mica.arange(6.0), mica.tensor([2, 1, 0])
    with pytest.raises(RuntimeError, match="unsupported operation: some elements of the input tensor"):
        REFUSED[name](x, at)
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and at.tolist() == [2, 1, 0]


def test_one_value_of_the_tensor_itself_is_taken():
    x = mica.arange(6.0)
    assert x.masked_fill_(x > 2, x[1]).tolist() == [0, 1, 2, 1, 1, 1]
    x[x > 1] = x[0]
    assert x.tolist() == [0, 1, 0, 1, 1, 1]
    assert x.fill_(x[1]).tolist() == [1] * 6
    bits = mica.tensor([1.5, 2.5])
    assert bits.copy_(bits.view(mica.int32)).tolist() == [1069547520.0, 1075838976.0]


def test_masked_fill_warns_of_expanded_tensors():
    x, mask = mica.ones(1).expand(6), mica.tensor([True, False, True, True, False, False])
    for value in (0.0, mica.tensor(0.0)):
        with pytest.warns(UserWarning, match="Use of masked_fill_ on expanded tensors is deprecated"):
            assert x.masked_fill_(mask, value).tolist() == [0] * 6
    rows = mica.tensor([[1.0], [2.0]]).expand(2, 3)
    with pytest.warns(UserWarning, match="expanded tensors"):
        rows.masked_fill_(mica.tensor([[False, True, False], [False] * 3]), 5.0)
    assert rows.tolist() == [[5, 5, 5], [2, 2, 2]]
    assert mica.ones(1).expand(6).masked_fill(mask, 2.0).tolist() == [2, 1, 2, 2, 1, 1]


def torch_calls_dense(sizes, strides):
    return sorted(zip(strides, sizes, strict=True))[1][0] == sorted(zip(strides, sizes, strict=True))[0][1]


def test_common_elements_are_found_in_every_geometry():
    base = mica.arange(40.0)
    for sizes, strides in itertools.product([(3, 2), (2, 3)], itertools.product([1, 2, 3, 5, 7], repeat=2)):
        for offset in range(8):
            target = base.clone()
            written = target.as_strided(sizes, strides, 0)
            if len({i * strides[0] + j * strides[1] for i in range(sizes[0]) for j in range(sizes[1])}) < 6:
                continue
            expected = target.clone()
            read = target.as_strided(sizes, strides, offset)
            if 1 in strides and torch_calls_dense(sizes, strides) and 0 < offset < 6:
                with pytest.raises(RuntimeError, match="refer to a single memory location"):
                    written.copy_(read)
                continue
            expected.as_strided(sizes, strides, 0).copy_(base.as_strided(sizes, strides, offset))
            written.copy_(read)
            assert mica.equal(target, expected), (sizes, strides, offset)
