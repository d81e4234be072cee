"""Layout, joining, padding and creation: what samples cannot show."""

import warnings

import mica
import numpy as np
import pytest


def test_split_family_returns_views():
    x = mica.arange(12).reshape(3, 4)
    for pieces in (x.split(2), x.chunk(2, 1), x.unbind(), x.tensor_split(2, 1), x.hsplit(2), x.split([1, 2])):
        assert isinstance(pieces, tuple)
        assert all(p.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for p in pieces)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_pad_as_numpy(mode):
    a = np.arange(24.0).reshape(1, 4, 6)
    name = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    ours = mica.nn.functional.pad(mica.from_numpy(a), (2, 3), mode=name)
    assert np.array_equal(ours.numpy(), np.pad(a, ((0, 0), (0, 0), (2, 3)), mode=mode))


def test_arange_and_friends():
    assert mica.arange(5).dtype == mica.int64 and mica.arange(5.0).dtype == mica.float32
    assert mica.arange(1, 6, 2).tolist() == [1, 3, 5] and mica.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert mica.linspace(0, 1, 5, dtype=mica.float64).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert mica.linspace(3, 4, 1).tolist() == [3] and mica.linspace(3, 4, 0).shape == (0,)
    assert mica.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert mica.tril_indices(3, 3, -1).tolist() == [[1, 2, 2], [0, 0, 1]]
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        mica.arange(0, 5, 0)
    with pytest.raises(RuntimeError, match="inconsistent with step sign"):
        mica.arange(0, 5, -1)


def test_channels_last_is_kept():
    x = mica.zeros(2, 3, 5, 7).to(memory_format=mica.channels_last)
    assert x.stride() == (105, 1, 21, 3)
    for y in (x + 1, x * x, x.clone(), x.exp(), mica.empty_like(x), x.to(mica.float64), x > 0):
        assert y.is_contiguous(memory_format=mica.channels_last)


@pytest.mark.parametrize("dim", range(4))
def test_cat_keeps_channels_last_where_all_pieces_have_it(dim):
    x = mica.arange(240.0).view(2, 4, 6, 5)
    last = x.to(memory_format=mica.channels_last)
    halves = (last.narrow(dim, 0, 1), last.narrow(dim, 1, x.size(dim) - 1))
    for pieces in ((last, last), halves, (mica.empty(0), *halves)):
        joined = mica.cat(pieces, dim)
        assert joined.is_contiguous(memory_format=mica.channels_last)
        assert mica.equal(joined, mica.cat([p.contiguous() for p in pieces], dim))
    assert mica.cat((last, x), dim).is_contiguous() and mica.cat((x, last), dim).is_contiguous()


def test_cat_of_nothing_but_empty_lists_has_any_dimension():
    assert mica.cat([mica.empty(0), mica.empty(0)], dim=1).shape == (0,)


def test_writing_through_strides_that_interleave_or_overlap():
    x = mica.zeros(8)
    x.as_strided((3, 2), (2, 3)).add_(1)  # interleaved, but each element once
    assert x.tolist() == [1, 0, 1, 1, 1, 1, 0, 1]
    windows = mica.zeros(5).unfold(0, 2, 1)
    assert windows.fill_(3).tolist() == [[3, 3]] * 4
    assert windows.zero_().sum() == 0
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        windows.add_(1)
    # Copied row after row, so that the last value written stays.
    rows = mica.zeros(8).as_strided((3, 4), (2, 1))
    assert rows.copy_(mica.arange(12.0).view(3, 4)).tolist() == [[0, 1, 4, 5], [4, 5, 8, 9], [8, 9, 10, 11]]
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        mica.zeros(1, 4).expand(3, 4).copy_(rows)


def test_negative_strides_are_views():
    x = mica.arange(10)
    y = x[::-1]
    assert y.stride() == (-1,) and y.tolist() == list(range(9, -1, -1)) and y.data_ptr() == x[9:].data_ptr()
    y[0] = 100
    assert x[9].item() == 100
    assert x[8:2:-3].tolist() == [8, 5]
    assert (y + y).tolist()[1] == 16 and y.sum().item() == x.sum().item()
    assert y.contiguous().stride() == (1,)


def test_a_resized_storage_is_seen_by_its_views():
    x = mica.arange(4)
    view = x[1:3]
    x.resize_(1000)
    x[1] = 77
    assert view[0].item() == 77


@pytest.mark.parametrize(
    "call,error,words",
    [
        (lambda: mica.zeros(3).view(2), RuntimeError, "shape '[2]' is invalid for input of size 3"),
        (lambda: mica.zeros(2, 3).t().view(6), RuntimeError, "view size is not compatible"),
        (lambda: mica.zeros(-1), RuntimeError, "negative dimension"),
        (lambda: mica.empty(2**40, 2**40), RuntimeError, "overflow"),
        (lambda: mica.empty(2**50, dtype=mica.uint8), RuntimeError, "can't allocate memory"),
        (lambda: mica.cat([mica.zeros(2, 3), mica.zeros(2, 4)]), RuntimeError, "Sizes of tensors must match"),
        (lambda: mica.cat([]), (ValueError, RuntimeError), "non-empty"),
        (
            lambda: mica.stack([mica.zeros(2), mica.zeros(3)]),
            RuntimeError,
            "stack expects each tensor to be equal size",
        ),
        (lambda: mica.zeros(3).expand(2), RuntimeError, "must match the existing size"),
        (lambda: mica.zeros(3, 1).expand(3, 0x5555555555555557), RuntimeError, "overflow"),  # would count five elements
        (lambda: mica.zeros(2**20, 1, device="meta").expand(2**20, 2**44), RuntimeError, "overflow"),
        (lambda: mica.zeros(2, 3).repeat(1, 2**62), RuntimeError, "overflow"),
        (lambda: mica.repeat_interleave(mica.tensor([1, -1])), RuntimeError, "can not be negative"),
        # The sum wraps around to eight.
        (lambda: mica.repeat_interleave(mica.tensor([2**63 - 1, 2**63 - 1, 10])), RuntimeError, "does not fit 64 bits"),
        (lambda: mica.nn.functional.pixel_shuffle(mica.zeros(1, 8, 3, 4), 2**40), ValueError, "too large"),
        (
            lambda: mica.nn.MaxUnpool1d(2**62)(mica.zeros(1, 1, 4), mica.zeros(1, 1, 4).long()),
            ValueError,
            "more elements",
        ),
        (lambda: mica.istft(mica.ones(5, 6) * 1j, 8, 4, window=mica.ones(8), length=2**63 - 1), RuntimeError, "length"),
        (lambda: mica.zeros(3).as_strided((5,), (2,)), RuntimeError, "out of bounds"),
        (lambda: mica.zeros(3).as_strided((2,), (2**62,)), RuntimeError, "overflowed"),
        (lambda: mica.zeros(3).as_strided((2,), (-1,)), RuntimeError, "out of bounds"),
        (lambda: mica.zeros(3).transpose(0, 3), IndexError, "Dimension out of range"),
        (lambda: mica.zeros(2, 2).permute(0, 0), RuntimeError, "permute"),
        (lambda: mica.zeros(3).unfold(0, 5, 1), RuntimeError, "maximum size"),
        (lambda: mica.zeros(1).expand(3).add_(1), RuntimeError, "more than one element of the written-to tensor"),
        (lambda: mica.tensor([1j]).conj().view(mica.float32), RuntimeError, "not supported for conjugate view tensors"),
        (lambda: mica.tensor([1j]).conj().imag.view(mica.int32), RuntimeError, "tensors with negative bit set"),
        (lambda: mica.zeros(4).tensor_split(mica.tensor(1.0)), RuntimeError, "dtype of long, but got Float"),
    ],
)
def test_bad_input_is_refused(call, error, words):
    with pytest.raises(error) as e:
        call()
    assert words in str(e.value)


def test_narrow_from_where_a_tensor_says():
    x = mica.arange(5)
    assert x.narrow(0, mica.tensor(1), 2).tolist() == [1, 2]
    assert mica.narrow(x, 0, mica.tensor(-3), 2).tolist() == [2, 3]
    for start in (mica.tensor([1]), mica.tensor(1.0), mica.tensor(True)):
        with pytest.raises(RuntimeError, match="start must be an 0-dim integral Tensor."):
            x.narrow(0, start, 2)


def test_squeeze_in_place_of_several_dimensions():
    x = mica.ones(1, 2, 1)
    assert x.squeeze_((0, 2)) is x and x.shape == (2,)
    assert mica.ones(1, 2, 1).squeeze_((0, 1)).shape == (2, 1)


@pytest.mark.parametrize(
    ("size", "expanded", "strides"),
    [
        ((5,), (1, 1, 5), (5, 5, 1)),
        ((5,), (2, 1, 5), (0, 5, 1)),
        ((5, 1), (1, 5, 3), (5, 1, 0)),
        ((5, 0), (1, 5, 0), (5, 1, 1)),
        ((), (1, 1), (0, 0)),
    ],
)
def test_dimensions_of_one_that_expand_adds_are_those_of_unsqueeze(size, expanded, strides):
    assert mica.zeros(size).expand(expanded).stride() == strides


def test_a_reshape_that_copies_is_no_view():
    x = mica.zeros(2, 3, requires_grad=True)
    assert x.reshape(3, 2)._is_view() and x.flatten()._is_view()
    for copied in (x.t().reshape(6), x.t().flatten()):
        assert not copied._is_view() and copied.data_ptr() != x.data_ptr()
    copied = x.t().reshape(6)
    copied.add_(1)
    (copied * mica.arange(6)).sum().backward()
    assert x.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_swapped_axes_by_name():
    x = mica.zeros(2, 3)
    assert mica.swapaxes(x, axis0=0, axis1=1).shape == x.swapaxes(axis0=1, axis1=0).shape == (3, 2)
    assert x.swapdims(dim0=0, dim1=1).shape == (3, 2)


def test_writing_to_a_conjugate_or_negative_view_changes_what_it_shows():
    x = mica.tensor([1 + 2j, 3 - 4j])
    c = x.conj()
    c.mul_(2)
    assert x.tolist() == [2 + 4j, 6 - 8j] and c.tolist() == [2 - 4j, 6 + 8j]
    c[0] = 1j
    assert x[0].item() == -1j
    c.imag.copy_(mica.tensor([5.0, 6.0]))
    assert x.imag.tolist() == [-5, -6]
    c.copy_(x)
    assert x.tolist() == [5j, 6 + 6j]
    c.zero_()
    assert x.tolist() == [0, 0]
    for fill in (
        lambda: mica.mul(mica.tensor([1j, 2 + 2j]), 1, out=c),
        lambda: mica.sum(mica.tensor([[1j, 2 + 2j]]), 0, out=c),
        lambda: mica.cat((mica.tensor([1j]), mica.tensor([2 + 2j])), out=c),
        lambda: mica.add(x.zero_(), mica.tensor([1j, 2 + 2j]), out=c),
    ):
        fill()
        assert c.tolist() == [1j, 2 + 2j] and x.tolist() == [-1j, 2 - 2j]
    z = mica.tensor([1 + 2j], requires_grad=True)
    y = z * 1
    y.conj().mul_(1j)
    y.imag.sum().backward()
    assert z.grad.tolist() == [-1]


def test_dimensions_that_do_not_exist_or_come_twice():
    with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
        mica.zeros(()).roll(0, 0)
    with pytest.raises(RuntimeError, match=r"movedim: repeated dim in `source` \(\[0, -3\]\)"):
        mica.movedim(mica.zeros(2, 3, 4), (0, -3), (1, 2))
    with pytest.raises(RuntimeError, match=r"movedim: repeated dim in `destination` \(\[1, 1\]\)"):
        mica.movedim(mica.zeros(2, 3, 4), (0, 1), (1, 1))


@pytest.mark.parametrize(
    ("copy", "view"),
    [
        (lambda x: mica.alias_copy(x), lambda x: x),
        (lambda x: mica.as_strided_copy(x, (2, 2), (4, 1), 1), lambda x: x.as_strided((2, 2), (4, 1), 1)),
        (lambda x: mica.diagonal_copy(x, 1), lambda x: x.diagonal(1)),
        (lambda x: mica.expand_copy(x, (2, 3, 4)), lambda x: x.expand(2, 3, 4)),
        (lambda x: mica.permute_copy(x, (1, 0)), lambda x: x.permute(1, 0)),
        (lambda x: mica.select_copy(x, 1, 2), lambda x: x.select(1, 2)),
        (lambda x: mica.slice_copy(x, 1, 1, 4, 2), lambda x: x[:, 1:4:2]),
        (lambda x: mica.squeeze_copy(x[:, :1]), lambda x: x[:, :1].squeeze()),
        (lambda x: mica.t_copy(x), lambda x: x.t()),
        (lambda x: mica.transpose_copy(x, 0, 1), lambda x: x.transpose(0, 1)),
        (lambda x: mica.unfold_copy(x, 1, 2, 1), lambda x: x.unfold(1, 2, 1)),
        (lambda x: mica.unsqueeze_copy(x, 0), lambda x: x.unsqueeze(0)),
        (lambda x: mica.view_copy(x, (2, 6)), lambda x: x.view(2, 6)),
        (lambda x: mica.split_with_sizes_copy(x, (1, 2))[1], lambda x: x[1:]),
        (lambda x: mica.unbind_copy(x, 1)[1], lambda x: x[:, 1]),
        (lambda x: mica.unsafe_chunk(x, 2)[0], lambda x: x[:2]),
        (lambda x: x.unsafe_split(2)[1], lambda x: x[2:]),
    ],
)
def test_copies_of_views(copy, view):
    x = mica.arange(12.0).view(3, 4).requires_grad_()
    y = copy(x)
    assert y.tolist() == view(x).tolist() and y.is_contiguous() and not y._is_view()
    y.square_().sum().backward()  # changing a piece does no harm
    copied, x.grad = x.grad, None
    view(x).square().sum().backward()
    assert copied.tolist() == x.grad.tolist()


def test_copies_into_lists_of_tensors():
    x = mica.arange(6.0).reshape(2, 3)
    out = [mica.empty(0), mica.empty(5)]
    assert mica.unbind_copy(x, out=out) is None and [t.tolist() for t in out] == x.tolist()
    out = [mica.empty(0), mica.empty(0)]
    assert mica.split_with_sizes_copy(x, [1, 2], 1, out=out) is None
    assert [t.tolist() for t in out] == [[[0], [3]], [[1, 2], [4, 5]]]
    out = [mica.empty(2, 2), mica.empty(2, 1)]
    assert mica.split_copy(x, 2, 1, out=out) is None and out[1].tolist() == [[2], [5]]
    with pytest.raises(RuntimeError, match=r"unbind_copy_int_out expected an out= argument of size 2, got size 1"):
        mica.unbind_copy(x, out=[mica.empty(0)])
    assert [t.tolist() for t in mica.unbind_copy(x, 1)] == x.t().tolist()


def test_copies_of_ranges_into_tensors():
    x, out = mica.arange(12.0).view(4, 3), mica.empty(0)
    assert mica.narrow_copy(x, 0, 1, 2, out=out) is out and out.tolist() == x[1:3].tolist()
    out = mica.empty(0)
    assert mica.slice_scatter(x, mica.zeros(2, 3), 0, 1, 3, out=out) is out
    assert out.tolist() == mica.slice_scatter(x, mica.zeros(2, 3), 0, 1, 3).tolist()
    assert mica.slice_scatter(x, mica.ones(4, 1), 1, 0, 1, out=x) is x and x[:, 0].tolist() == [1.0] * 4


def test_a_number_is_its_own_transpose():
    x = mica.tensor(2j)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is deprecated
        assert x.mT.item() == 2j and x.mH.item() == -2j
