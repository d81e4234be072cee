"""Attention on CUDA against the CPU in float64: own kernels and cuDNN's, which take over when a shape has come a few times."""

import mica
import pytest

F = mica.nn.functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

TURNS = 4  # of which cuDNN computes the last ones


def inputs(batch, heads, kv_heads, length, keys, width, value_width, layout, dtype):
    """Query, key, value and a gradient as (batch, heads, length, width), here and there.

    They lie in that order, with heads inside of positions, or as slices of wider tensors.
    """
    sizes = (
        (heads, length, width),
        (kv_heads, keys, width),
        (kv_heads, keys, value_width),
        (heads, length, value_width),
    )
    here, there = [], []
    for i, (h, n, w) in enumerate(sizes):
        mica.manual_seed(i)
        shape = {"heads outside": (batch, h, n, w), "heads inside": (batch, n, h, w), "slices": (batch, n, 3 * h * w)}
        base = mica.randn(shape[layout]).to(dtype)
        for made, t in ((here, base), (there, base.cuda())):
            if layout == "slices":
                t = t[:, :, h * w : 2 * h * w].view(batch, n, h, w)
            made.append(t if layout == "heads outside" else t.transpose(1, 2))
    return here, there


def relative_error(x, exact):
    exact = exact.detach()
    return ((x.detach().cpu().double() - exact).norm() / exact.norm().clamp_min(1e-9)).item()


SHAPES = [
    # batch, heads, heads of keys, queries, keys, width, width of values
    (2, 12, 12, 1024, 1024, 64, 64), (4, 8, 2, 512, 512, 128, 128), (8, 8, 8, 200, 333, 64, 64), (8, 6, 6, 333, 200, 40, 40),
    (4, 16, 4, 257, 257, 72, 72), (16, 8, 8, 130, 130, 96, 96), (4, 4, 1, 400, 400, 8, 8),
    (2, 8, 8, 384, 384, 256, 256), (2, 8, 8, 300, 300, 192, 128), (2, 8, 4, 256, 512, 64, 128), (1, 2, 2, 70, 65, 64, 64), (2, 3, 3, 3, 5, 16, 16),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("layout", ["heads outside", "heads inside", "slices"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape, causal, layout, dtype):
    if dtype == "float16" and layout != "heads inside":
        pytest.skip("every layout is tried with bfloat16")
    dtype = getattr(mica, dtype)
    (*here, g), (*there, grad) = inputs(*shape, layout, dtype)
    exact = [t.double().requires_grad_() for t in here]
    options = {"is_causal": causal, "enable_gqa": shape[1] != shape[2]}
    expected = F.scaled_dot_product_attention(*exact, **options)
    expected.backward(g.double())
    unit = 2.0**-8 if dtype == mica.bfloat16 else 2.0**-11
    for _ in range(TURNS):
        leaves = [t.detach().requires_grad_() for t in there]
        found = F.scaled_dot_product_attention(*leaves, **options)
        found.backward(grad)
        # Half a unit of the dtype in each of the two roundings, relative to the largest value.
        for x, y in [(found, expected), *((t.grad, e.grad) for t, e in zip(leaves, exact, strict=True))]:
            assert relative_error(x, y) < 2 * unit


def test_scale_and_expanded_inputs():
    here, there = inputs(4, 8, 8, 256, 256, 64, 64, "heads outside", mica.bfloat16)
    q, k, v = here[0], here[1][:, :1].expand(4, 8, 256, 64), here[2][:1].expand(4, 8, 256, 64)
    exact = [t.double().requires_grad_() for t in (q, k, v)]
    expected = F.scaled_dot_product_attention(*exact, scale=0.3)
    expected.sum().backward()  # whose gradient is one expanded number
    for _ in range(TURNS):
        q, k, v = there[0].detach(), there[1][:, :1].expand(4, 8, 256, 64), there[2][:1].expand(4, 8, 256, 64)
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        found = F.scaled_dot_product_attention(*leaves, scale=0.3)
        found.sum().backward()
        assert relative_error(found, expected) < 2.0**-7
        assert relative_error(leaves[2].grad, exact[2].grad) < 2.0**-7


def test_results_repeat_where_asked():
    _, (q, k, v, g) = inputs(4, 8, 8, 512, 512, 64, 64, "heads inside", mica.bfloat16)

    def gradients():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        F.scaled_dot_product_attention(*leaves, is_causal=True).backward(g)
        return [t.grad for t in leaves]

    mica.use_deterministic_algorithms(True)
    try:
        first = gradients()
        for _ in range(TURNS):
            assert all(mica.equal(a, b) for a, b in zip(gradients(), first, strict=True))
    finally:
        mica.use_deterministic_algorithms(False)


def test_cudnn_can_be_forbidden():
    _, (q, k, v, _) = inputs(4, 8, 8, 512, 512, 64, 64, "heads inside", mica.bfloat16)
    for _ in range(TURNS):
        by_cudnn = F.scaled_dot_product_attention(q, k, v)
    with mica.nn.attention.sdpa_kernel(mica.nn.attention.SDPBackend.FLASH_ATTENTION):
        own = F.scaled_dot_product_attention(q, k, v)
        assert not mica.backends.cuda.cudnn_sdp_enabled()
    assert mica.backends.cuda.cudnn_sdp_enabled()
    assert relative_error(own, by_cudnn.double().cpu()) < 2.0**-7


def test_in_a_graph():
    _, (q, k, v, _) = inputs(4, 8, 8, 512, 512, 64, 64, "heads inside", mica.bfloat16)
    for _ in range(TURNS):
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    graph = mica.cuda.CUDAGraph()
    with mica.cuda.graph(graph):
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    found.zero_()
    graph.replay()
    assert mica.equal(found, expected)


@pytest.mark.parametrize("width", [64, 256])
def test_nothing_to_attend(width):
    for batch, length, keys in ((0, 5, 7), (2, 0, 7)):
        q, k = (mica.empty(batch, 4, n, width, dtype=mica.bfloat16, device="cuda") for n in (length, keys))
        q.requires_grad_()
        out = F.scaled_dot_product_attention(q, k, k)
        assert out.shape == (batch, 4, length, width)
        out.sum().backward()
        assert q.grad.shape == q.shape


@pytest.mark.parametrize("mask", ["none", "bool", "numbers", "one row", "nothing seen"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 4, 4, 200, 200, 64, 64), (1, 4, 2, 65, 130, 64, 64), (2, 2, 2, 130, 65, 100, 100), (1, 2, 1, 70, 70, 128, 128),
        (3, 2, 2, 1, 7, 4, 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_float32_arithmetic_and_masks(shape, causal, mask, dtype):
    dtype = getattr(mica, dtype)
    if dtype == mica.bfloat16 and (mask == "none" or shape[5] % 8):
        pytest.skip("other kernels take these")
    batch, heads, _, length, keys, *_ = shape
    (*here, g), (*there, grad) = inputs(*shape, "heads inside", dtype)
    mica.manual_seed(7)
    given = {
        "none": None,
        "bool": mica.rand(batch, 1, length, keys) < 0.7,
        "numbers": mica.randn(heads, length, keys),
        "one row": mica.randn(1, keys).to(dtype),
        "nothing seen": mica.arange(length)[:, None] % 3 > mica.zeros(keys),
    }[mask]
    exact = [t.double().requires_grad_() for t in here]
    leaves = [t.detach().requires_grad_() for t in there]
    options = {"is_causal": causal, "enable_gqa": heads != shape[2]}
    double = given.double() if given is not None and given.is_floating_point() else given
    expected = F.scaled_dot_product_attention(*exact, double, **options)
    found = F.scaled_dot_product_attention(*leaves, given if given is None else given.cuda(), **options)
    expected.backward(g.double())
    found.backward(grad)
    unit = 2.0**-7 if dtype == mica.bfloat16 else 1e-5
    for x, y in [(found, expected), *((t.grad, e.grad) for t, e in zip(leaves, exact, strict=True))]:
        assert not x.isnan().any().item()
        assert relative_error(x, y) < unit


def test_float32_holds_no_scores():
    q = mica.randn(1, 4, 4096, 64, device="cuda", requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    mica.cuda.synchronize()
    before = mica.cuda.memory_allocated()
    mica.cuda.reset_peak_memory_stats()
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert mica.cuda.max_memory_allocated() - before < 12 * q.numel() * 4  # one matrix of scores is 64 times that of q
