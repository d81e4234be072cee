"""Matrices of which two in every four elements are kept: their form is torch's, bit by bit; products are CUDA's."""

import copy
import io

import mica as torch
import pytest
from mica.nn import functional as F
from mica.sparse import semi_structured
from mica.sparse._semi_structured_conversions import (
    sparse_semi_structured_from_dense_cutlass,
    sparse_semi_structured_to_dense_cutlass,
    tile_mask,
    word_order,
)
from mica.sparse.semi_structured import (
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    swizzled_bitmask,
    to_sparse_semi_structured,
)

UNITS = {torch.float16: (32, 64), torch.bfloat16: (32, 64), torch.float32: (32, 32), torch.int8: (16, 128)}


def halved(rows, columns, dtype):
    """Small whole numbers, half of them zero as the dtype's form wants it."""
    torch.manual_seed(0)
    dense = torch.randint(1, 6, (rows, columns)) * (torch.randint(0, 2, (rows, columns)) * 2 - 1)
    group = 2 if dtype == torch.float32 else 4
    order = torch.rand(rows, columns // group, group).argsort(-1)
    return (dense * (order < group // 2).view(rows, columns)).to(dtype)


def form(dense):
    return SparseSemiStructuredTensorCUTLASS(
        dense.shape, *sparse_semi_structured_from_dense_cutlass(dense), None, None, None
    )


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_there_and_back(dtype):
    rows, columns = UNITS[dtype]
    dense = halved(2 * rows, 3 * columns, dtype)
    packed, meta = sparse_semi_structured_from_dense_cutlass(dense)
    assert packed.shape == (2 * rows, 3 * columns // 2) and packed.dtype == dtype
    assert sparse_semi_structured_to_dense_cutlass(packed, meta).equal(dense)


# Recorded from torch 2.13: the two elements of a group that are kept and their places, by which of the four are not zero.
KEPT = [(14, 0, 0), (8, 1, 0), (9, 2, 0), (4, 1, 2), (14, 3, 0), (8, 1, 3), (9, 2, 3), (4, 1, 2), (14, 0, 4), (12, 1, 4),
        (13, 2, 4), (4, 1, 2), (14, 3, 4), (12, 1, 4), (13, 2, 4), (4, 1, 2)]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
def test_every_pattern_of_a_group(dtype):
    rows, columns = UNITS[dtype]
    dense = torch.zeros(2 * rows, columns, dtype=dtype)
    for pattern in range(16):
        dense[pattern, :4] = torch.tensor([i + 1 if pattern >> i & 1 else 0 for i in range(4)])
    packed, meta = sparse_semi_structured_from_dense_cutlass(dense)
    order = word_order(*meta.shape, meta.dtype, "cpu")
    found = [(int(meta.view(-1)[order[p, 0]]) & 15, *packed[p, :2].tolist()) for p in range(16)]
    assert found == KEPT


def test_the_order_of_words():
    # Recorded from torch 2.13.
    order = word_order(64, 4, torch.int16, "cpu")
    assert sorted(order.view(-1).tolist()) == list(range(256))
    assert [order[r].tolist() for r in (0, 1, 8, 16, 24, 39)] == [
        [0, 2, 128, 130], [8, 10, 136, 138], [1, 3, 129, 131], [4, 6, 132, 134], [5, 7, 133, 135], [120, 122, 248, 250],
    ]  # fmt: skip
    order = word_order(64, 2, torch.int32, "cpu")
    assert [order[r].tolist() for r in (0, 1, 8, 16, 24, 39)] == [[0, 2], [4, 6], [1, 3], [32, 34], [33, 35], [92, 94]]


def test_lanes_take_the_words_as_they_lie():
    """What the kernel relies on: lane 4g + t takes word 4g + t of 32 rows, which is of the rows g and g + 8."""
    dense = halved(64, 64, torch.float16)
    packed, meta = sparse_semi_structured_from_dense_cutlass(dense)
    words = meta.view(-1).view(torch.int32).tolist()
    for depth in range(2):
        for group in range(2):
            for lane in range(32):
                word = words[(depth * 2 + group) * 32 + lane]
                for half in range(2):
                    row = group * 32 + lane % 4 // 2 * 16 + half * 8 + lane // 4
                    column = depth * 32 + lane % 2 * 16
                    bits = word >> (16 * half)
                    for quad in range(4):
                        for kept in range(2):
                            place = bits >> (4 * quad + 2 * kept) & 3
                            value = packed[row, column // 2 + 2 * quad + kept]
                            assert value == dense[row, column + 4 * quad + place]


def test_parts_and_copies():
    dense = halved(32, 128, torch.float16)
    sparse = form(dense)
    assert repr(sparse) == "SparseSemiStructuredTensorCUTLASS(shape=torch.Size([32, 128]))"
    assert sparse.shape == (32, 128) and sparse.dtype == torch.float16 and sparse.device.type == "cpu"
    assert sparse.values().shape == (32, 64) and sparse.indices().shape == (32, 8)
    for same in (sparse, sparse.detach(), sparse.clone(), copy.deepcopy(sparse), sparse.t().t(), sparse.to("cpu")):
        assert type(same) is SparseSemiStructuredTensorCUTLASS and same.to_dense().equal(dense)
    assert sparse.t().shape == (128, 32)
    with pytest.raises(AssertionError, match="meta and packed must not be None"):
        sparse.t().to_dense()
    parts, context = sparse.__tensor_flatten__()
    again = type(sparse).__tensor_unflatten__({name: getattr(sparse, name) for name in parts}, context, None, None)
    assert parts == ["packed", "meta"] and again.to_dense().equal(dense)
    layer = torch.nn.Linear(128, 32)
    layer.weight = torch.nn.Parameter(sparse, requires_grad=False)
    assert type(layer.weight.data) is SparseSemiStructuredTensorCUTLASS
    file = io.BytesIO()
    torch.save(sparse, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).to_dense().equal(dense)


def test_what_is_refused():
    dense = halved(32, 64, torch.float16)
    sparse, x = form(dense), torch.ones(64, 8, dtype=torch.float16)
    for call in (
        lambda: to_sparse_semi_structured(dense),
        lambda: SparseSemiStructuredTensorCUSPARSELT.from_dense(dense),
        lambda: SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort(dense),
    ):
        with pytest.raises(RuntimeError, match="Only CUDA tensors are currently supported"):
            call()
    for call, words in (
        (lambda: sparse @ x, "Could not run 'aten::_sparse_semi_structured_mm' with arguments from the 'CPU' backend"),
        (lambda: F.linear(x.t(), sparse, torch.ones(32)), "'aten::_sparse_semi_structured_addmm'"),
        (lambda: x.t()[:, :32] @ sparse, "`SparseSemiStructuredTensorCUTLASS` matmul: operation is not supported"),
        (lambda: torch.addmm(x, sparse, x), "only bias dim=1 supported"),
        (lambda: torch.addmm(x[0], sparse, x), "only operand B of `addmm` can be sparse"),
        (lambda: sparse + 1, r"can't perform requested op \(add.Tensor\)"),
        (lambda: sparse.view(64, 32), "`view` is not implemented for SparseSemiStructuredTensor"),
        (lambda: sparse.to(torch.float32), "Only converting to CPU is supported currently"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            call()
    with pytest.raises(ValueError, match="not supported by the hardware"):
        sparse @ sparse
    with pytest.raises(ValueError, match="At least one of packed or packed_t must be provided"):
        SparseSemiStructuredTensorCUTLASS(dense.shape, None, None, None, None, None)
    for bad, words in (
        (torch.zeros(2, 3, 4), "Expected 2-dimensional dense tensor, got 3-dimensional tensor"),
        (torch.zeros(30, 64), "Number of rows of dense matrix 30 must be divisible by 32"),
        (torch.zeros(32, 60, dtype=torch.float16), "Number of columns of dense matrix 60 must be divisible by 16"),
        (torch.zeros(32, 64, dtype=torch.float64), "Invalid datatype torch.float64 of dense matrix"),
    ):
        with pytest.raises(RuntimeError, match=words):
            sparse_semi_structured_from_dense_cutlass(bad)


def test_tiles_keep_the_largest_two_of_rows_and_columns():
    # Recorded from torch 2.13's reference.
    tile = torch.tensor([[-11, -12, -3, -4], [3.2, -13, 3.5, 3.1], [12.8, 12.9, 6, 13.3], [-2.3, 0.5, -2.5, 8.6]])
    assert tile_mask(tile).int().tolist() == [[1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0, 1]]
    assert tile_mask(tile, by_size=True).int().tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]]
    for by_size in (False, True):
        mask = tile_mask(torch.randn(32, 64), by_size).view(8, 4, 16, 4)
        assert mask.sum(1).max() == 2 and mask.sum(3).max() == 2 and mask.sum() >= 8 * 16 * 7


def test_bits_of_a_mask():
    # Recorded from torch 2.13: (row, column) -> (index, byte).
    for (row, column), index, byte in (
        ((0, 1), (0, 0, 0, 0), 2), ((0, 4), (0, 0, 1, 0), 1), ((1, 0), (0, 0, 0, 0), 16), ((3, 0), (0, 0, 0, 1), 16),
        ((7, 0), (0, 0, 2, 1), 16), ((8, 0), (1, 0, 0, 0), 1), ((0, 63), (0, 7, 1, 0), 8), ((0, 64), (0, 8, 0, 0), 1),
    ):  # fmt: skip
        mask = torch.zeros(64, 128, dtype=torch.bool)
        mask[row, column] = True
        bits = swizzled_bitmask(mask)
        assert bits.shape == (8, 16, 4, 2) and bits[index] == byte and bits.sum() == byte


@pytest.fixture
def dense_product(monkeypatch):
    """Products by way of dense ones, in the place of the kernel."""

    def product(sparse, dense, bias=None):
        found = sparse.to_dense().float() @ dense.float()
        return (found if bias is None else found + bias[:, None]).to(sparse.dtype)

    monkeypatch.setattr(semi_structured, "product", product)


def test_products_and_gradients_reach_the_kernel_in_the_right_order(dense_product):
    # Of float16, where two of four stay: a tile's mask keeps that along rows and columns. Of float32 one of two stays,
    # which the columns of a masked tile need not obey, so that a packed transpose would lose elements.
    dense = halved(64, 64, torch.float16)
    dense = dense * tile_mask(dense)
    parts = (*sparse_semi_structured_from_dense_cutlass(dense), *sparse_semi_structured_from_dense_cutlass(dense.t()))
    sparse = SparseSemiStructuredTensorCUTLASS(dense.shape, *parts, None)
    assert sparse.to_dense().equal(dense) and sparse.t().to_dense().equal(dense.t())
    x, bias, wide = (torch.randint(-3, 4, size).half() for size in ((2, 3, 64), (64,), (64, 5)))
    x.requires_grad_()
    torch.testing.assert_close(sparse @ wide, dense @ wide)
    torch.testing.assert_close(wide.t() @ sparse.t(), wide.t() @ dense.t())
    torch.testing.assert_close(torch.addmm(bias, wide.t(), sparse.t()), torch.addmm(bias, wide.t(), dense.t()))
    torch.testing.assert_close(F.linear(x, sparse, bias), F.linear(x, dense, bias))
    gradient = torch.randint(-3, 4, (2, 3, 64)).half()
    F.linear(x, sparse).backward(gradient)
    torch.testing.assert_close(x.grad, gradient @ dense)
    rows = SparseSemiStructuredTensorCUTLASS(dense.shape, *parts[:2], None, None, None)  # without a transpose
    x.grad = None
    F.linear(x, rows).backward(gradient)
    torch.testing.assert_close(x.grad, gradient @ dense)
