"""Products with matrices of which two in every four elements are kept, against dense ones."""

import mica
import pytest
from mica.nn import functional as F
from mica.sparse import SparseSemiStructuredTensor, SparseSemiStructuredTensorCUTLASS, to_sparse_semi_structured

pytestmark = pytest.mark.cuda
DTYPES = {mica.float16: 2e-3, mica.bfloat16: 2e-2, mica.float32: 2e-3}


def halved(rows, columns, dtype):
    group = 2 if dtype == mica.float32 else 4
    kept = mica.rand(rows, columns // group, group).argsort(-1) < group // 2
    if dtype == mica.int8:
        return (mica.randint(-8, 8, (rows, columns)) * kept.view(rows, columns)).to(dtype).cuda()
    return (mica.randn(rows, columns) * kept.view(rows, columns)).to(dtype).cuda()


def randn(*shape, dtype):
    if dtype == mica.int8:
        return mica.randint(-8, 8, shape).to(dtype).cuda()
    return mica.randn(*shape).to(dtype).cuda()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(32, 64, 8), (32, 64, 1), (64, 128, 24), (160, 192, 131), (1024, 768, 300)])
def test_products(dtype, shape):
    mica.manual_seed(0)
    m, k, n = shape
    dense = halved(m, k, dtype)
    sparse = to_sparse_semi_structured(dense)
    assert sparse.to_dense().equal(dense) and isinstance(sparse, SparseSemiStructuredTensor)
    x, bias = randn(k, n, dtype=dtype), randn(m, dtype=dtype)
    close = {"atol": DTYPES[dtype] * k**0.5, "rtol": DTYPES[dtype]}
    wanted = dense.double() @ x.double()
    for operand in (x, x.t().contiguous().t(), mica.cat([x, x], 1)[:, :n]):
        mica.testing.assert_close((sparse @ operand).double(), wanted, **close)
    mica.testing.assert_close((x.t() @ sparse.t()).double(), wanted.t(), **close)
    with_bias = wanted + bias.double()[:, None]
    mica.testing.assert_close(F.linear(x.t(), sparse, bias).double(), with_bias.t(), **close)
    mica.testing.assert_close(mica.addmm(bias, x.t(), sparse.t()).double(), with_bias.t(), **close)
    assert F.linear(x.t().reshape(1, n, k), sparse).shape == (1, n, m)


@pytest.mark.parametrize("shape", [(16, 128, 16), (48, 256, 7), (512, 1024, 96)])
def test_products_of_bytes(shape):
    mica.manual_seed(0)
    m, k, n = shape
    dense, x = halved(m, k, mica.int8), randn(k, n, dtype=mica.int8)
    sparse = to_sparse_semi_structured(dense)
    wanted = dense.cpu().int() @ x.cpu().int()
    assert (sparse @ x).cpu().equal(wanted.clamp(-128, 127).to(mica.int8))
    from mica.sparse.semi_structured import product

    assert product(sparse, x, out_dtype=mica.int32).cpu().equal(wanted)


@pytest.mark.parametrize("dtype", [mica.float16, mica.bfloat16], ids=str)
def test_training_with_pruned_weights(dtype):
    mica.manual_seed(0)
    weight = mica.randn(128, 256, dtype=dtype, device="cuda")
    sparse = SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort(weight, "largest_abs_values_greedy")
    dense = sparse.to_dense()
    tiles = (dense != 0).view(32, 4, 64, 4)
    assert tiles.sum(1).max() == 2 and tiles.sum(3).max() == 2
    assert sparse.t().to_dense().equal(dense.t())
    x = mica.randn(64, 256, dtype=dtype, device="cuda", requires_grad=True)
    grad = mica.randn(64, 128, dtype=dtype, device="cuda")
    F.linear(x, sparse).backward(grad)
    mica.testing.assert_close(x.grad.double(), grad.double() @ dense.double(), atol=0.1, rtol=2e-2)


def test_shapes_that_are_refused():
    for shape in ((30, 64), (32, 60)):
        with pytest.raises(RuntimeError, match="Both dimensions must be larger or equal than and a multiple of"):
            to_sparse_semi_structured(mica.zeros(shape, dtype=mica.float16, device="cuda"))
    with pytest.raises(RuntimeError, match="is not a supported dtype"):
        to_sparse_semi_structured(mica.zeros(32, 64, dtype=mica.float64, device="cuda"))
    sparse = to_sparse_semi_structured(halved(32, 64, mica.float16))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sparse @ mica.ones(32, 8, dtype=mica.float16, device="cuda")
    with pytest.raises(RuntimeError, match="same dtype"):
        sparse @ mica.ones(64, 8, device="cuda")
    assert (sparse @ mica.ones(64, 0, dtype=mica.float16, device="cuda")).shape == (32, 0)
