"""Sparse tensors on CUDA against the CPU."""

import mica
import numpy as np
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

LAYOUTS = ["coo", "csr", "csc", "bsr", "bsc"]
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-13, "complex64": 1e-5}


def dense(shape, dtype="float64", share=0.3, seed=0):
    rng = np.random.default_rng([seed, *shape])
    values = rng.integers(1, 9, shape) * (rng.random(shape) < share)
    return mica.from_numpy(values).to(getattr(mica, dtype))


def sparse(t, layout, **more):
    blocks = {"blocksize": (2, 2)} if layout in ("bsr", "bsc") else {}
    name = "to_sparse" if layout == "coo" else f"to_sparse_{layout}"
    return getattr(t, name)(**blocks, **more)


def parts(t):
    if t.layout == mica.sparse_coo:
        return t._indices(), t._values()
    if t.layout in (mica.sparse_csr, mica.sparse_bsr):
        return t.crow_indices(), t.col_indices(), t.values()
    return t.ccol_indices(), t.row_indices(), t.values()


def assert_same(there, here):
    assert there.layout == here.layout and there.dtype == here.dtype and there.device.type == "cuda"
    if there.layout != mica.strided:
        for a, b in zip(parts(there), parts(here), strict=True):
            assert_same(a, b)
        return
    tolerance = TOLERANCE.get(str(here.dtype).rsplit(".", 1)[-1], 0)
    mica.testing.assert_close(there.cpu(), here, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "int64", "uint8", "bool"])
def test_there_and_back(layout, dtype):
    for shape in [(6, 8), (0, 4), (4, 0), (64, 130)]:
        t = dense(shape, dtype)
        here, there = sparse(t, layout), sparse(t.cuda(), layout)
        assert_same(there, here)
        assert_same(there.to_dense(), t)
        assert_same(here.cuda(), here)
        assert mica.equal(there.cpu().to_dense(), t)


@pytest.mark.parametrize(
    "shape,sparse_dim", [((4, 5, 6), 3), ((4, 5, 6), 2), ((4, 5, 6), 1), ((7,), 1), ((3, 1, 4, 2), 4)]
)
def test_coo_of_any_dimensions(shape, sparse_dim):
    t = dense(shape)
    assert_same(t.cuda().to_sparse(sparse_dim), t.to_sparse(sparse_dim))
    assert_same(t.cuda().to_sparse(sparse_dim).to_dense(), t)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "bool"])
@pytest.mark.parametrize("dense_size", [(), (3,)])
def test_coalesce(dtype, dense_size):
    rng = np.random.default_rng(0)
    for n, size in ((0, (5, 7)), (1, (5, 7)), (50, (5, 7)), (5000, (1000, 900)), (3000, (1 << 20, 1 << 20))):
        indices = mica.from_numpy(np.stack([rng.integers(0, s, n) for s in size]))
        values = mica.from_numpy(rng.integers(0, 5, (n, *dense_size))).to(getattr(mica, dtype))
        here = mica.sparse_coo_tensor(indices, values, (*size, *dense_size)).coalesce()
        there = mica.sparse_coo_tensor(indices.cuda(), values.cuda(), (*size, *dense_size)).coalesce()
        assert there.is_coalesced()
        assert_same(there, here)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products(layout, dtype):
    for width in (1, 3, 16, 60, 300):
        t, other = dense((32, 48), dtype), dense((48, width), dtype, 1.0, 1)
        here, there = sparse(t, layout) @ other, sparse(t.cuda(), layout) @ other.cuda()
        assert_same(there, here)
    vector = dense((48,), dtype, 1.0, 2)
    if layout not in ("bsr", "bsc"):
        assert_same(sparse(t.cuda(), layout) @ vector.cuda(), sparse(t, layout) @ vector)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_products_of_two(layout):
    a, b = dense((20, 30)), dense((30, 25), seed=1)
    here, there = sparse(a, layout) @ sparse(b, layout), sparse(a.cuda(), layout) @ sparse(b.cuda(), layout)
    assert_same(there, here)


def test_sampled_products():
    pattern, a, b = dense((20, 30)), dense((20, 7), seed=1), dense((7, 30), seed=2)
    here = mica.sparse.sampled_addmm(pattern.to_sparse_csr(), a, b, beta=0.5, alpha=2)
    there = mica.sparse.sampled_addmm(pattern.cuda().to_sparse_csr(), a.cuda(), b.cuda(), beta=0.5, alpha=2)
    assert_same(there, here)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: mica.sparse.sum(s),
        lambda s: mica.sparse.sum(s, dim=0),
        lambda s: mica.sparse.softmax(s, dim=1),
        lambda s: mica.sparse.log_softmax(s, dim=0),
        lambda s: s + s,
        lambda s: s * s,
        lambda s: (s * 3).neg(),
        lambda s: s.transpose(0, 1).coalesce(),
        lambda s: s.sqrt(),
        lambda s: s.to_dense() + s,
        lambda s: s.index_select(0, mica.tensor([2, 0], device=s.device)),
        lambda s: s.to(mica.float32),
    ],
    ids=range(12),
)
def test_operations(call):
    t = dense((6, 9))
    assert_same(call(t.cuda().to_sparse()), call(t.to_sparse()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(layout):
    def run(device):
        t = dense((6, 8)).to(device)
        s = sparse(t, layout)
        values = parts(s)[-1].detach().requires_grad_()
        x = dense((8, 3), share=1.0, seed=1).to(device).requires_grad_()
        make = {
            "coo": lambda: mica.sparse_coo_tensor(s._indices(), values, (6, 8)),
        }.get(layout, lambda: mica.sparse_compressed_tensor(*parts(s)[:2], values, (6, 8), layout=s.layout))
        (make() @ x).square().sum().backward()
        return values.grad, x.grad

    for there, here in zip(run("cuda"), run("cpu"), strict=True):
        assert_same(there, here)


def test_bad_parts_are_refused():
    with pytest.raises(RuntimeError, match="size is inconsistent with indices: for dim 1, size is 2 but found index 5"):
        mica.sparse_coo_tensor(mica.tensor([[0], [5]], device="cuda"), mica.ones(1, device="cuda"), (2, 2))
    begins, columns = mica.tensor([0, 2, 2], device="cuda"), mica.tensor([1, 0], device="cuda")
    with pytest.raises(RuntimeError, match="sorted and distinct"):
        mica.sparse_compressed_tensor(
            begins, columns, mica.ones(2, device="cuda"), (2, 2), layout=mica.sparse_csr, check_invariants=True
        )


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "shape", [(5,), (2048,), (70001,), (3, 5, 7), (300, 411), (128, 16, 64), (2, 3, 4, 5, 6, 7), (1, 1), (40000, 1)]
)
def test_packing(shape, dtype):
    """Tiles and chunks that are full and that are not, beginnings that no vector has, densities from none to all."""
    for share in (0.0, 0.01, 0.3, 1.0):
        t = dense(shape, dtype, share)
        here, there = t.to_sparse(), t.cuda().to_sparse()
        assert there._nnz() == here._nnz() and there.is_coalesced()
        assert mica.equal(there._indices().cpu(), here._indices())
        assert mica.equal(there._values().cpu(), here._values())
        whole = mica.cat([mica.ones(1).to(t.dtype), t.flatten()]).cuda()
        moved = whole[1:].view(shape).to_sparse()
        assert mica.equal(moved._indices().cpu(), here._indices())
        assert mica.equal(moved._values().cpu(), here._values())
        assert mica.equal(t.cuda().nonzero().cpu(), t.nonzero())


def test_packing_negative_zeros():
    t = mica.tensor([[0.0, -0.0], [float("nan"), -1.0]])
    there = t.cuda().to_sparse()
    assert mica.equal(there._indices().cpu(), mica.tensor([[1, 1], [0, 1]]))
