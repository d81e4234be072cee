"""Norms of compiled functions on a GPU: what stands before and after them is part of their kernel, with the same bits."""

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]
# Rows and their length: many rows of whole tiles, of parts of tiles, few rows, long ones.
SHAPES = [(8192, 768), (5000, 640), (4300, 1024), (300, 2048), (130, 4096), (64, 100), (2000, 12), (40, 4000)]


def filled(seed, *shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).to(dtype)


def norms(count, kind):
    torch.manual_seed(0)
    norm = (nn.LayerNorm if kind == "layer" else nn.RMSNorm)(count, device="cuda")
    with torch.no_grad():
        for i, p in enumerate(norm.parameters()):
            p.copy_(filled(50 + i, count) * 0.2 + 1)
    return norm


def same(a, b):
    assert a.dtype == b.dtype and torch.equal(a, b), (a - b).abs().max()


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_of_a_transformer(shape, kind, narrow):
    """The sum of a branch and the stream is normalised and rounded; backward, gradients are widened and added."""
    rows, count = shape
    norm = norms(count, kind)

    def block(x, y):
        x = x + y
        return x, norm(x).to(narrow)

    def run(function):
        x, y = filled(1, rows, count).requires_grad_(), filled(2, rows, count, dtype=narrow).requires_grad_()
        stream, out = function(x, y)
        grads = torch.autograd.grad(
            (stream, out), [x, y, *norm.parameters()], [filled(3, rows, count), filled(4, rows, count, dtype=narrow)]
        )
        return stream, out, *grads

    expected = run(block)
    before = torch._C._recording_counts()
    found = run(torch.compile(block))
    ran = {name: value - before[name] for name, value in torch._C._recording_counts().items()}
    for a, b in zip(expected, found, strict=True):
        same(a, b)
    # The norm's own result never reaches memory, nor does the widened gradient, nor that of the input before the sum.
    assert ran["loops"] < ran["calls"]
    if rows * count > 100_000:
        assert ran["bytes_kept_out_of_memory"] >= 2 * 4 * rows * count


def test_what_is_asked_for_besides_is_there():
    norm = norms(768, "layer")

    def everything(x, y):
        total = x + y
        out = norm(total)
        return total, out, out.bfloat16(), out * 2

    x, y = filled(1, 4096, 768), filled(2, 4096, 768)
    with torch.no_grad():
        for a, b in zip(everything(x, y), torch.compile(everything)(x, y), strict=True):
            same(a, b)


def test_sums_in_place_and_terms_that_are_read_twice():
    norm = norms(768, "layer")

    def accumulates(x, y):
        x += y
        first = norm(x).bfloat16()
        x += first
        second = norm(x).bfloat16()
        return x * 1, first, second, y + x

    with torch.no_grad():
        expected = accumulates(filled(1, 4096, 768), filled(2, 4096, 768))
        found = torch.compile(accumulates)(filled(1, 4096, 768), filled(2, 4096, 768))
    for a, b in zip(expected, found, strict=True):
        same(a, b)


def test_norms_that_do_not_fit_run_as_they_are():
    def run(shape, count, dtype):
        x, w = filled(1, *shape, dtype=dtype), filled(2, count, dtype=dtype)
        both = [
            f(x, w)
            for f in (
                lambda x, w: F.layer_norm(x + 1, (count,), w, w) * 2,
                torch.compile(lambda x, w: F.layer_norm(x + 1, (count,), w, w) * 2),
            )
        ]
        same(*both)

    run((500, 4100), 4100, torch.float32)
    run((500, 77), 77, torch.float32)
    run((500, 768), 768, torch.bfloat16)
    run((500, 64), 64, torch.float64)


@pytest.mark.parametrize("offset", [1, 4])
def test_rows_that_begin_elsewhere(offset):
    norm = norms(128, "layer")
    memory = filled(1, 4096 * 128 + 8)

    def block(memory):
        x = memory[offset : offset + 4096 * 128].view(4096, 128)
        return norm(x + x).bfloat16()

    with torch.no_grad():
        same(block(memory), torch.compile(block)(memory))


def test_a_model_trains_alike():
    def train(compiler):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(
            256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, device="cuda"
        )
        model = nn.Sequential(layer, nn.LayerNorm(256, device="cuda"), nn.Linear(256, 64, device="cuda"))
        compiled, optimizer = compiler(model), torch.optim.AdamW(model.parameters(), 1e-3)
        losses = []
        for step in range(3):
            x = filled(step, 16, 128, 256)
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(compiled(x).flatten(0, 1), torch.arange(16 * 128, device="cuda") % 64)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().clone() for p in model.parameters()]

    expected, found = train(lambda m: m), train(torch.compile)
    assert expected[0] == found[0]
    for a, b in zip(expected[1], found[1], strict=True):
        same(a, b)
