"""Sparse tensors: construction and its checks, conversions, files, copies, printing."""

import copy
import io
import itertools
import pickle

import mica as torch
import pytest
from sparse_examples import COMPRESSED, LAYOUTS, coo, dense_example, in_layout

# ---- COO


def test_coo_has_its_parts():
    s = coo()
    assert s.shape == (2, 3) and s.layout is torch.sparse_coo and s.is_sparse and not s.is_sparse_csr
    assert s._nnz() == 3 and s.sparse_dim() == 2 and s.dense_dim() == 0 and s.numel() == 6
    assert not s.is_coalesced() and s.coalesce().is_coalesced()
    assert s.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
    assert s._indices().tolist() == [[0, 1, 1], [2, 0, 2]] and s._values().tolist() == [3, 4, 5]
    with pytest.raises(RuntimeError, match="please call .coalesce\\(\\) first"):
        s.values()


def test_coalesce_sums_and_sorts():
    s = torch.sparse_coo_tensor([[1, 0, 1, 1], [2, 1, 2, 0]], [1.0, 2.0, 3.0, 4.0], (2, 3)).coalesce()
    assert s.indices().tolist() == [[0, 1, 1], [1, 0, 2]] and s.values().tolist() == [2, 4, 4]
    assert s.coalesce() is s or torch.equal(s.coalesce().to_dense(), s.to_dense())


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.complex64, torch.bool]
)
def test_coalesce_in_every_kind_of_dtype(dtype):
    values = torch.tensor([1, 0, 1, 1]).to(dtype)
    s = torch.sparse_coo_tensor([[1, 0, 1, 1]], values, (3,)).coalesce()
    expected = torch.tensor([0, 3, 0]).to(dtype)
    assert s.dtype == dtype and torch.equal(s.to_dense(), expected)


def test_many_equal_indices():
    torch.manual_seed(0)
    i = torch.randint(0, 30, (2, 5000))
    v = torch.rand(5000, dtype=torch.float64)
    s = torch.sparse_coo_tensor(i, v, (30, 30))
    expected = torch.zeros(30, 30, dtype=torch.float64).index_put_((i[0], i[1]), v, accumulate=True)
    torch.testing.assert_close(s.coalesce().to_dense(), expected)
    torch.testing.assert_close(s.to_dense(), expected)
    indices = s.coalesce().indices()
    keys = indices[0] * 30 + indices[1]
    assert (keys[1:] > keys[:-1]).all()


def test_hybrid():
    values = torch.arange(6.0).reshape(3, 2)
    s = torch.sparse_coo_tensor([[0, 2, 0]], values, (3, 2))
    assert s.sparse_dim() == 1 and s.dense_dim() == 1
    assert s.to_dense().tolist() == [[4, 6], [0, 0], [2, 3]]
    x = dense_example()
    assert torch.equal(x.to_sparse(1).to_dense(), x) and x.to_sparse(1).values().shape == (4, 6)


def test_empty_and_inferred_sizes():
    assert torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0]).shape == (3,)
    s = torch.sparse_coo_tensor(size=(2, 3))
    assert s._nnz() == 0 and s.to_dense().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert torch.zeros(0, 3).to_sparse().to_dense().shape == (0, 3)
    assert torch.tensor(5.0).to_sparse().to_dense().item() == 5


@pytest.mark.parametrize(
    ("indices", "values", "size", "message"),
    [
        ([[0, 5]], [1.0, 2.0], (3,), "for dim 0, size is 3 but found index 5"),
        ([[0, -1]], [1.0, 2.0], (3,), "found negative index -1 for dim 0"),
        ([[0, 1]], [1.0], (3,), "same nnz"),
        ([[0, 1]], [1.0, 2.0], (3, 2), "number of dimensions must be"),
        ([[0, 1]], [[1.0], [2.0]], (3, 2), "values has incorrect size"),
        ([0, 1], [1.0, 2.0], (3,), "sparse_dim x nnz"),
        ([[True, False]], [1.0, 2.0], (3,), "integral"),
    ],
)
def test_bad_coo_parts(indices, values, size, message):
    with pytest.raises(RuntimeError, match=message):
        torch.sparse_coo_tensor(indices, values, size)


@pytest.mark.parametrize("indices", [[[0.0, 1.7]], torch.tensor([[0.0, 1.7]])])
def test_coo_indices_that_are_not_integers_lose_their_fraction(indices):
    assert torch.sparse_coo_tensor(indices, [1.0, 2.0], (3,))._indices().tolist() == [[0, 1]]
    assert torch.sparse_coo_tensor(torch.empty(1, 0), [], (1,))._indices().dtype == torch.int64
    with pytest.raises(RuntimeError, match="integral"):
        torch.sparse_csr_tensor([0.0, 1.0], [0], [1.0], (1, 1))


def test_false_claim_of_being_coalesced():
    with pytest.raises(RuntimeError, match="uncoalesced"):
        torch.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (3,), is_coalesced=True)


def test_indices_that_a_program_breaks_are_noticed():
    s = coo()
    s._indices()[0, 0] = 100
    with pytest.raises(RuntimeError, match="found index 100"):
        s.to_dense()
    with pytest.raises(RuntimeError, match="found index 100"):
        torch.sparse.mm(s, torch.ones(3, 2))


# ---- compressed layouts


def test_csr_has_its_parts():
    a = torch.sparse_csr_tensor([0, 1, 2, 3], [2, 0, 1], [3.0, 4.0, 5.0], (3, 3))
    assert a.layout is torch.sparse_csr and a.is_sparse_csr and not a.is_sparse
    assert a.crow_indices().tolist() == [0, 1, 2, 3] and a.col_indices().tolist() == [2, 0, 1]
    assert a.values().tolist() == [3, 4, 5] and a._nnz() == 3
    assert a.to_dense().tolist() == [[0, 0, 3], [4, 0, 0], [0, 5, 0]]
    with pytest.raises(RuntimeError, match="column compressed"):
        a.ccol_indices()


@pytest.mark.parametrize(
    ("crow", "col", "values", "size", "message"),
    [
        ([0, 1], [0], [1.0], (2, 2), "must be equal to the number of"),
        ([1, 1, 1], [0], [1.0], (2, 2), "0\\] == 0"),
        ([0, 1, 2], [0], [1.0], (2, 2), "== nnz"),
        ([0, 2, 1], [0], [1.0], (2, 2), "is not satisfied"),
        ([0, 1, 1], [2], [1.0], (2, 2), "< ncols` is not satisfied"),
        ([0, 2, 2], [1, 0], [1.0, 2.0], (2, 2), "sorted and distinct"),
        ([0, 1, 1], [0], [1.0, 2.0], (2, 2), "nnz"),
    ],
)
def test_bad_compressed_parts(crow, col, values, size, message):
    with pytest.raises(RuntimeError, match=message):
        torch.sparse_csr_tensor(crow, col, values, size)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_every_conversion(source, target):
    x = dense_example()
    y = in_layout(in_layout(x, source), target)
    assert y.layout is target and torch.equal(y.to_dense(), x)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_batches_of_compressed_matrices(layout):
    x = torch.stack([dense_example(), dense_example().flip(0)])
    s = in_layout(x, layout)
    assert s.shape == x.shape and torch.equal(s.to_dense(), x) and torch.equal(s[1].to_dense(), x[1])
    x[0, 0, 0] = 1
    x[0, 0, 1] = 1
    if layout in (torch.sparse_csr, torch.sparse_csc):
        with pytest.raises(RuntimeError, match="same number of specified elements"):
            in_layout(x, layout)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_dense_dimensions_of_compressed_tensors(layout):
    x = dense_example().unsqueeze(-1) * torch.tensor([1.0, 2.0])
    block = (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    s = x.to_sparse(layout=layout, blocksize=block, dense_dim=1)
    assert s.dense_dim() == 1 and torch.equal(s.to_dense(), x)


def test_32_bit_indices():
    crow, col = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32)
    a = torch.sparse_csr_tensor(crow, col, torch.tensor([1.0, 2.0]), (2, 2))
    assert a.crow_indices().dtype == torch.int32 and (a @ torch.eye(2)).tolist() == [[0, 1], [2, 0]]


# ---- files, copies, printing


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_and_copies(layout):
    x = in_layout(dense_example(), layout)
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    for y in (torch.load(buffer)["x"], pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone()):
        assert y.layout is layout and torch.equal(y.to_dense(), x.to_dense())


def test_a_file_with_bad_indices_is_refused():
    s = coo()
    s._indices()[0, 0] = 100
    buffer = io.BytesIO()
    torch.save(s, buffer)
    buffer.seek(0)
    with pytest.raises(Exception, match="found index 100"):
        torch.load(buffer)


def test_printing():
    assert repr(coo()) == (
        "tensor(indices=tensor([[0, 1, 1],\n                       [2, 0, 2]]),\n"
        "       values=tensor([3., 4., 5.]),\n       size=(2, 3), nnz=3, layout=torch.sparse_coo)"
    )
    assert repr(coo().to_sparse_csr()) == (
        "tensor(crow_indices=tensor([0, 1, 3]),\n       col_indices=tensor([2, 0, 2]),\n"
        "       values=tensor([3., 4., 5.]), size=(2, 3), nnz=3,\n       layout=torch.sparse_csr)"
    )


def test_conversions_of_dtype():
    assert coo().double().dtype == torch.float64 and coo().to(torch.int64)._values().dtype == torch.int64


def test_scipy():
    scipy = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    x = dense_example()
    for kind in ("coo", "csr", "csc", "bsr"):
        matrix = getattr(scipy, f"{kind}_array")(x.numpy())
        assert torch.equal(torch.sparse.from_scipy(matrix).to_dense(), x)
    for layout in LAYOUTS:
        assert (torch.sparse.to_scipy(in_layout(x, layout)).toarray() == x.numpy()).all()


def test_any_byte_but_zero_is_true():
    """Bytes seen as bool may hold other numbers than 0 and 1; each counts once."""
    flags = torch.tensor([2, 0, 1, 255, 0, 7] * 50, dtype=torch.uint8).view(torch.bool)
    assert flags.to_sparse().indices().equal(flags.nonzero().t()) and flags.to_sparse().values().all()
