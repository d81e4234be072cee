"""Arithmetic of COO tensors whose indices repeat, with dense tensors, and in place; recorded from torch 2.13."""

import mica
import pytest

INDEX = [[0, 0, 1]]


def repeated(dtype=mica.float32):
    return mica.sparse_coo_tensor(mica.tensor(INDEX), mica.tensor([1, 2, 3]).to(dtype), (2,))


@pytest.mark.parametrize("add, sign", [(lambda x, z: z + x, 1), (lambda x, z: x + z, 1), (lambda x, z: z - x, -1)])
def test_a_sum_with_nothing_leaves_repeated_indices(add, sign):
    got = add(repeated(), mica.sparse_coo_tensor((2,)))
    assert not got.is_coalesced() and got._indices().tolist() == INDEX
    assert got._values().tolist() == [sign * 1.0, sign * 2.0, sign * 3.0]


def test_products_with_larger_dense_tensors():
    dense = mica.tensor([[5, 6], [7, 8]], dtype=mica.int16)
    for got in (dense * repeated(mica.int16), repeated(mica.int16) * dense):
        assert got.layout == mica.sparse_coo and got.dtype == mica.int16 and got.is_coalesced()
        assert got.to_dense().tolist() == [[15, 18], [21, 24]]
        assert got._indices().tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    with pytest.raises(RuntimeError, match="size"):
        repeated() * mica.ones(3)


def test_a_dense_tensor_times_a_sparse_one_in_place():
    dense = mica.tensor([[5, 6], [7, 8]], dtype=mica.int16)
    assert dense.mul_(repeated(mica.int16)) is dense and dense.layout == mica.strided
    assert dense.tolist() == [[15, 18], [21, 24]]


def test_floor_division():
    for divisor in (2, mica.tensor(2.0)):
        got = repeated() // divisor
        assert got.is_coalesced() and got._values().tolist() == [1.0, 1.0]
    assert (repeated(mica.int16) // 2)._values().dtype == mica.int16
    for divided, divisor in ((repeated(), repeated()), (mica.ones(2), repeated()), (repeated(), mica.ones(2))):
        with pytest.raises(RuntimeError, match="Sparse floor division requires a scalar or zero-dim dense tensor"):
            divided // divisor
    with pytest.raises(RuntimeError, match="Sparse division requires a scalar or zero-dim dense tensor"):
        mica.ones(2) / repeated()


@pytest.mark.parametrize("name", ["sin_", "abs_", "log1p_", "sqrt_", "asin_", "round_", "nan_to_num_"])
def test_in_place_functions_want_indices_once(name):
    x = repeated()
    with pytest.raises(RuntimeError, match=f"{name} requires coalesced input"):
        getattr(x, name)()
    assert x._values().tolist() == [1, 2, 3]
    getattr(x.coalesce(), name)()
    assert repeated().neg_()._values().tolist() == [-1, -2, -3]


def test_new_is_sparse_too():
    x = repeated()
    assert x.new().layout == mica.sparse_coo and x.new().shape == (0,)
    assert x.new(mica.Size([2, 3])).shape == (2, 3) and x.new(2, 3)._nnz() == 0
    for given in ([6], mica.ones(3)):
        with pytest.raises(TypeError):
            x.new(given)


def test_the_order_of_dimensions_is_that_of_strided_tensors():
    with pytest.raises(AttributeError, match="Can't get dim order on sparse type: torch.sparse.FloatTensor"):
        repeated().dim_order()


@pytest.mark.parametrize("layout", [mica.sparse_coo, mica.sparse_csr, mica.sparse_csc])
def test_complex_numbers_of_sixteen_bits(layout):
    x = mica.tensor([[1 + 2j, 0], [0, 3 - 1j]], dtype=mica.complex32)
    sparse = x.to_sparse(layout=layout)
    assert sparse.dtype == mica.complex32 and sparse.to_dense().tolist() == x.tolist()


def test_products_broadcast_dense_dimensions():
    narrow = mica.sparse_coo_tensor([[0, 1]], mica.tensor([[2.0], [3.0]]), (2, 1))
    wide = mica.sparse_coo_tensor([[1, 1]], mica.ones(2, 3), (2, 3))
    assert (narrow * wide).to_dense().tolist() == [[0, 0, 0], [6, 6, 6]]
    assert (wide * narrow).shape == (2, 3)
    with pytest.raises(RuntimeError, match="expects sparse inputs with equal dimensionality"):
        mica.sparse_coo_tensor([[0]], [1.0], (3,)) * mica.sparse_coo_tensor([[0]], [1.0], (2,))


def test_a_copy_is_as_coalesced_as_its_source():
    one = mica.sparse_coo_tensor([[0]], [1.0], (3,))._coalesced_(False)
    assert not one.clone().is_coalesced() and one.coalesce().clone().is_coalesced()


@pytest.mark.parametrize("count", [0, 1, 10])
@pytest.mark.parametrize("dtype", [mica.float32, mica.uint8])
def test_products_of_a_sparse_number_and_dense_tensors(count, dtype):
    number = mica.sparse_coo_tensor(
        mica.zeros(0, count, dtype=mica.int64), mica.ones(count, dtype=dtype), (), check_invariants=True
    )
    dense = mica.tensor([1, 2, 3], dtype=dtype)
    for product in (dense * number, number * dense):
        assert product.layout is mica.sparse_coo
        assert product._indices().tolist() == [[0, 1, 2] if count else []]
        assert product._values().tolist() == ([count, 2 * count, 3 * count] if count else [])
    assert dense.clone().mul_(number).tolist() == [count, 2 * count, 3 * count]
    assert (mica.ones(2, 3, dtype=dtype) * number).to_dense().tolist() == [[count] * 3] * 2
