"""What a text that grows by a token asks for, against the CPU in float64: attention of a few queries, products of one row
with a matrix, norms of a few rows."""

import mica
import pytest

F = mica.nn.functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]
ROUNDING = {mica.float32: 3e-6, mica.float16: 2e-3, mica.bfloat16: 1.2e-2}


def drawn(*shape, seed=0, dtype=mica.float32):
    mica.manual_seed(seed)
    return mica.randn(shape).to(dtype)


def relative_error(there, exact):
    return ((there.cpu().double() - exact).norm() / exact.norm().clamp_min(1e-9)).item()


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("keys", [1, 3, 64, 160, 255, 513, 2100])
@pytest.mark.parametrize("length", [1, 2, 4])
@pytest.mark.parametrize("width", [8, 64, 72, 128])
def test_attention_of_a_few_queries(dtype, keys, length, width):
    query = drawn(2, 6, length, width, seed=1, dtype=dtype)
    key, value = drawn(2, 2, keys, width, seed=2, dtype=dtype), drawn(2, 2, keys, width, seed=3, dtype=dtype)
    masks = [None, drawn(2, 1, length, keys, seed=4) > -0.3, drawn(1, 6, 1, keys, seed=5).to(dtype)]
    for mask in masks:
        if mask is not None and mask.dtype is mica.bool:
            mask[..., 0] = True
        wide = mask.double() if mask is not None and mask.dtype is not mica.bool else mask
        exact = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), wide, enable_gqa=True)
        there = None if mask is None else mask.cuda()
        found = F.scaled_dot_product_attention(query.cuda(), key.cuda(), value.cuda(), there, enable_gqa=True)
        assert found.dtype is dtype
        assert relative_error(found, exact) < ROUNDING[dtype]
    if length > 1:
        exact = F.scaled_dot_product_attention(
            query.double(), key.double(), value.double(), is_causal=True, enable_gqa=True
        )
        found = F.scaled_dot_product_attention(query.cuda(), key.cuda(), value.cuda(), is_causal=True, enable_gqa=True)
        assert relative_error(found, exact) < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("batch", [1, 4, 40, 200])
def test_attention_by_blocks_that_share_keys(dtype, batch):
    # Up to eight blocks share the keys of a query, fewer where there are many queries.
    query, key, value = (drawn(batch, n, m, 64, seed=m, dtype=dtype) for n, m in ((4, 1), (2, 1500), (2, 1500)))
    mask = drawn(batch, 1, 1, 1500, seed=4) > 0.5
    exact = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), mask, enable_gqa=True)
    found = F.scaled_dot_product_attention(query.cuda(), key.cuda(), value.cuda(), mask.cuda(), enable_gqa=True)
    assert relative_error(found, exact) < ROUNDING[dtype]


def test_attention_of_a_query_that_sees_nothing():
    query, key = drawn(1, 2, 1, 64).cuda(), drawn(1, 2, 9, 64).cuda()
    seen = mica.zeros(1, 1, 1, 9, dtype=mica.bool, device="cuda")
    assert mica.equal(F.scaled_dot_product_attention(query, key, key, seen), mica.zeros_like(query))
    key[0, 0, 3, 5] = float("nan")
    assert F.scaled_dot_product_attention(query, key, key)[0, 0].isnan().all()
    many = drawn(1, 2, 1000, 64).cuda()
    assert mica.equal(F.scaled_dot_product_attention(query, many, many, seen[..., :1]), mica.zeros_like(query))
    many[0, 0, 777, 5] = float("nan")
    found = F.scaled_dot_product_attention(query, many, many)[0]
    assert found[0].isnan().all() and not found[1].isnan().any()


def test_attention_of_a_few_queries_has_gradients():
    leaves = [drawn(2, 4, n, 64, seed=n).requires_grad_() for n in (2, 30, 31)]
    query, key, value = leaves[0], leaves[1], leaves[2][:, :, :30]
    F.scaled_dot_product_attention(query, key, value).pow(2).sum().backward()
    there = [leaf.detach().cuda().requires_grad_() for leaf in leaves]
    F.scaled_dot_product_attention(there[0], there[1], there[2][:, :, :30]).pow(2).sum().backward()
    for here, other in zip(leaves, there, strict=True):
        assert relative_error(other.grad, here.grad.double()) < 1e-5


@pytest.mark.parametrize("dtype", [mica.float16, mica.bfloat16])
@pytest.mark.parametrize("inner", [8, 40, 256, 1000, 2048, 5632])
@pytest.mark.parametrize("columns", [1, 7, 256, 2048, 5000])
def test_products_of_one_row(dtype, inner, columns):
    row, weight, bias = drawn(1, inner, seed=1, dtype=dtype), drawn(columns, inner, seed=2, dtype=dtype), None
    for bias in (None, drawn(columns, seed=3, dtype=dtype)):
        exact = F.linear(row.double(), weight.double(), None if bias is None else bias.double())
        found = F.linear(row.cuda(), weight.cuda(), None if bias is None else bias.cuda())
        assert relative_error(found, exact) < ROUNDING[dtype]
    wide = drawn(columns, inner + 8, seed=4, dtype=dtype)
    assert (
        relative_error(F.linear(row.cuda(), wide.cuda()[:, 8:]), row.double() @ wide[:, 8:].double().T)
        < ROUNDING[dtype]
    )
    odd = wide.cuda()[:, 3 : inner + 3]
    assert relative_error(F.linear(row.cuda(), odd), row.double() @ wide[:, 3 : inner + 3].double().T) < ROUNDING[dtype]
    into = drawn(1, columns, seed=5, dtype=dtype)
    exact = into.double() * 0.5 + 2 * row.double() @ weight.double().T
    found = mica.addmm(into.cuda(), row.cuda(), weight.cuda().T, beta=0.5, alpha=2)
    assert relative_error(found, exact) < ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("rows", [1, 3, 200])
@pytest.mark.parametrize("count", [100, 257, 768, 2048, 4096, 5000])
def test_norms_of_a_few_rows(dtype, rows, count):
    x, weight, bias = (
        drawn(rows, count, seed=1, dtype=dtype),
        drawn(count, seed=2, dtype=dtype),
        drawn(count, seed=3, dtype=dtype),
    )
    exact = F.rms_norm(x.double(), (count,), weight.double(), 1e-5)
    assert relative_error(F.rms_norm(x.cuda(), (count,), weight.cuda(), 1e-5), exact) < ROUNDING[dtype]
    exact = F.layer_norm(x.double(), (count,), weight.double(), bias.double())
    assert relative_error(F.layer_norm(x.cuda(), (count,), weight.cuda(), bias.cuda()), exact) < ROUNDING[dtype]
