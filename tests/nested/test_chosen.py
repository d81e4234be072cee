"""Nested tensors: elements that are chosen, gaps between sequences, and shapes that are asked for by -1."""

import mica
import mica.nn.functional as F
import pytest
from mica import nested

NUMBERS = [mica.arange(2.0), mica.arange(3.0)]


def jagged(*parts, **kwargs):
    return nested.nested_tensor(list(parts), layout=mica.jagged, **kwargs)


def lists(x):
    return [part.tolist() for part in x.unbind()]


def with_gaps():
    """Rows of ten: two from 0, three from 1, four from 2."""
    starts, lengths = mica.tensor([0, 1, 2]), mica.tensor([2, 3, 4])
    return nested.narrow(mica.arange(30.0).view(3, 10), 1, starts, lengths, layout=mica.jagged)


def test_sequences_are_bags():
    ids, weight = jagged(mica.tensor([0, 1]), mica.tensor([2, 3, 1])), mica.arange(8.0).view(4, 2)
    assert F.embedding_bag(ids, weight).tolist() == [[1, 2], [4, 5]]
    assert F.embedding_bag(ids, weight, mode="sum").tolist() == [[2, 4], [12, 15]]
    assert F.embedding_bag(ids, weight, mode="max").tolist() == [[2, 3], [6, 7]]
    factors = nested.nested_tensor_from_jagged(mica.arange(1.0, 6.0), ids.offsets())
    assert F.embedding_bag(ids, weight, mode="sum", per_sample_weights=factors).tolist() == [[4, 7], [46, 58]]
    with pytest.raises(RuntimeError, match="whose sequences are the bags"):
        F.embedding_bag(jagged(mica.ones(2, 2, dtype=mica.int64)), weight)


def test_elements_are_chosen_and_written():
    x = jagged(*NUMBERS)
    assert lists(mica.masked_select(x, x > 0)) == [[1], [1, 2]]
    assert lists(mica.frexp(x).exponent) == [[0, 1], [0, 1, 2]]
    sequences, places = mica.tensor([0, 1]), mica.tensor([1, -1])
    assert lists(x.index_put((sequences, places), mica.tensor([10.0, 20.0]))) == [[0, 10], [0, 1, 20]]
    assert lists(x.index_put((mica.tensor([1]),), mica.tensor(9.0))) == [[0, 1], [9, 9, 9]]
    y = x.clone()
    y[sequences, places] = 5.0
    assert y.index_put_((sequences, sequences), mica.tensor(7.0)) is y and lists(y) == [[7, 5], [0, 7, 5]]
    assert lists(x) == [[0, 1], [0, 1, 2]]
    with pytest.raises(RuntimeError, match="Some indices in the ragged dimension are out of bounds"):
        y.index_put_((sequences, mica.tensor([2, 2])), mica.tensor(1.0))
    with pytest.raises(IndexError, match="out of range for the 2 sequences"):
        y.index_put_((mica.tensor([2]), mica.tensor([0])), mica.tensor(1.0))
    with pytest.raises(RuntimeError, match="Mask with shape"):
        mica.masked_select(x, jagged(*NUMBERS[::-1]) > 0)


def test_minus_one_is_the_batch_and_the_ragged_dimension():
    x = jagged(mica.arange(8.0).view(2, 4), mica.arange(12.0).view(3, 4))
    assert x.view(-1, -1, 2, 2).shape[:2] == x.shape[:2]
    assert lists(x.reshape(2, -1, 2, -1))[0] == mica.arange(8.0).view(2, 2, 2).tolist()
    for wrong in ((-1, 2, -1, 2), (2, 2, -1), (3, -1, 4), (-1,)):
        with pytest.raises(RuntimeError, match="cannot view shape"):
            x.view(*wrong)


def test_a_nested_size_is_no_number():
    x = jagged(*NUMBERS)
    for call in (lambda: x * x.size(1), lambda: x + x.size(1)):
        with pytest.raises(RuntimeError, match="invalid argument j"):
            call()


def test_dtypes_and_parts_of_numbers():
    x = jagged(*NUMBERS)
    assert (x.byte().dtype, x.char().dtype, x.short().dtype) == (mica.uint8, mica.int8, mica.int16)
    assert lists(mica.real(x)) == lists(x) == lists(x.cfloat().real)


def test_gaps_belong_to_nobody():
    x = with_gaps()
    assert lists(x) == [[0, 1], [11, 12, 13], [22, 23, 24, 25]]
    assert mica.argmax(x) == 25 and mica.argmin(x) == 0 and x.values()[mica.argmax(x)] == 25
    rows = with_gaps().unsqueeze(-1).expand(3, -1, 2).values().contiguous()
    y = nested.nested_tensor_from_jagged(rows, x.offsets(), x.lengths()).requires_grad_()
    for call in (
        lambda v, w: F.rms_norm(v, (2,), w),
        lambda v, w: F.layer_norm(v, (2,), w),
        lambda v, w: F.linear(v, w.unsqueeze(0)),
        lambda v, w: mica.matmul(v, w.unsqueeze(1)),
    ):
        ours, theirs = mica.ones(2, requires_grad=True), mica.ones(2, requires_grad=True)
        result = call(y, ours)
        result.backward(mica.ones_like(result))
        sum(call(part, theirs).sum() for part in y.detach().unbind()).backward()
        mica.testing.assert_close(ours.grad, theirs.grad)
    together = mica.bmm(y.detach(), mat2=mica.ones(3, 2, 2))
    assert together.offsets().tolist() == [0, 2, 5, 9]
    assert lists(together) == [(part @ mica.ones(2, 2)).tolist() for part in y.detach().unbind()]


def test_of_the_strided_layout():
    none = nested.nested_tensor([])
    assert len(F.softmax(none, 1)) == 0
    x = nested.nested_tensor([mica.ones(2, 3), mica.ones(1, 3)])
    with pytest.raises(RuntimeError, match="NestedTensor can only be reduced across the last dimension"):
        x.sum(0, keepdim=True)
    with pytest.raises(RuntimeError, match="NestedTensor can only be reduced across the last dimension"):
        x.sum([0, 1], keepdim=True)
    assert [part.item() for part in x.sum([1, 2]).unbind()] == [6, 3]
    with pytest.raises(RuntimeError, match="to be nested, but got a nested self and non-nested other"):
        x.mul(mica.ones(3))
    with pytest.raises(RuntimeError, match="to be nested, but got a non-nested self and nested other"):
        mica.ones(3).mul(x)
