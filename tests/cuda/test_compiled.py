"""Compiled functions on a GPU: pointwise kernels become one loop, with the same bits."""

import sys
from pathlib import Path

import mica as torch
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
from random_programs import check

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]
N = 20_000


def counted(function, *arguments):
    before = torch._C._recording_counts()
    found = torch.compile(function)(*arguments)
    return found, {name: value - before[name] for name, value in torch._C._recording_counts().items()}


def ramp(*shape, dtype=torch.float32):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.float64).reshape(shape) / 7 % 11 - 5).to("cuda", dtype)


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_random_programs_give_the_same_bits(first):
    for seed in range(first, first + 50):
        check(seed, "cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_chain_is_one_loop(dtype):
    def chain(x, y):
        return torch.sigmoid((x * 2 + 1).sin() * y - x / 3).mul(y).add(x).clamp(-1, 1)

    x, y = ramp(N, dtype=dtype), ramp(N, dtype=dtype)
    found, ran = counted(chain, x, y)
    assert torch.equal(found, chain(x, y))
    assert ran["calls"] == 10 and ran["loops"] == 1 and ran["flushes"] == 1
    assert ran["bytes_kept_out_of_memory"] == 9 * x.element_size() * N


FUNCTIONS = {
    "unary": lambda x, y: [
        f(x) + 0 for f in (torch.exp, torch.expm1, torch.tanh, torch.erf, torch.sin, torch.cos, torch.floor, torch.ceil, torch.round)
    ],
    "logarithms": lambda x, y: [f(x.abs() + 1) * 2 for f in (torch.log, torch.log2, torch.log1p, torch.sqrt, torch.rsqrt)],
    "arithmetic": lambda x, y: [(2 - x) / y, (x - y) * 3, torch.maximum(x, y) + 1, torch.minimum(x, y) - 1, -x + 1, torch.sub(x, y, alpha=2) * 1],
    "powers": lambda x, y: [(x * 1) ** e for e in (2, 3, 0.5, -0.5, -1, -2, 1.7)],
    "masks": lambda x, y: [torch.where(x > y, x, y) * 2, (x * 1).masked_fill(x <= 0, 7.0), ((x >= 0) & (y != 0)).logical_not()],
    "clamps": lambda x, y: [(x + y).clamp(-1, 1), (x + y).clamp(min=0), torch.clamp(x * 1, y, y + 1)],
    "activations": lambda x, y: [
        f(x) * 2
        for f in (
            torch.relu, torch.sigmoid, torch.nn.functional.silu, torch.nn.functional.gelu, torch.nn.functional.leaky_relu,
            lambda t: torch.nn.functional.gelu(t, approximate="tanh"),
        )
    ],
    "products": lambda x, y: [torch.addcmul(x * 1, x, y, value=0.3), torch.addcdiv(x * 1, x, y, value=-2), torch.lerp(x * 1, y, 0.25)],
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_functions(name, dtype):
    x, y = ramp(150, 200, dtype=dtype), ramp(150, 200, dtype=dtype).flip(0).contiguous()
    expected = FUNCTIONS[name](x, y)
    for when in ("followed", "translated"):
        found, ran = counted(FUNCTIONS[name], x, y)
        for i, (a, b) in enumerate(zip(expected, found, strict=True)):
            assert torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan()), (when, i)
    assert ran["generated"] > 0


def test_broadcasts_strides_and_mixed_dtypes():
    def f(x, row, column, half):
        return (x * row + column).sin() + half * 2 + x.t().t()

    x, row, column = ramp(131, 257), ramp(257), ramp(131, 1)
    half = ramp(131, 257, dtype=torch.bfloat16)
    found, ran = counted(f, x, row, column, half)
    assert torch.equal(found, f(x, row, column, half)) and ran["loops"] < ran["calls"]

    def g(x):
        return (x.permute(2, 0, 1) * 2).exp() + x.permute(2, 0, 1)[:, :1]

    x = ramp(40, 30, 50)
    found, _ = counted(g, x)
    assert torch.equal(found, g(x)) and found.stride() == g(x).stride()


def test_loops_of_one_kind_share_their_code():
    def f(x, y, a):
        return (x * a + y).relu() > y, (x - y).abs() / a

    counted(f, ramp(64, 100), ramp(64, 100), 2.0)
    for shape, number in (((64, 100), 3.0), ((32, 200), -0.5), ((7, 1000), 2.0)):
        x, y = ramp(*shape), ramp(*shape).flip(0).contiguous()
        found, ran = counted(f, x, y, number)
        assert ran["generated"] == ran["loops"] > 0
        for a, b in zip(f(x, y, number), found, strict=True):
            assert torch.equal(a, b)


def test_plans_that_are_found_again_have_the_numbers_of_the_call():
    def f(x, y, a, b):
        z = torch.add(x, y, alpha=a) * b
        lone = y[:, ::3] + b
        return z.clamp(-b, b), torch.addcmul(x + b, x, y, value=a), (y - a) / b, lone, (x * 1) ** a

    compiled = torch.compile(f)
    x, y = ramp(50, 300), ramp(50, 300).flip(0).contiguous()
    for call in range(12):
        a, b = 1 + call // 4, 0.5 + call
        for one, other in zip(f(x, y, a, b), compiled(x, y, a, b), strict=True):
            assert torch.equal(one, other)


def test_norms_by_plans_that_are_found_again():
    norm = torch.nn.LayerNorm(256, device="cuda")

    def f(x, y):
        x = x + y
        loss = (norm(x).bfloat16().float() * x).sum()
        loss.backward()
        return x, norm.weight.grad, norm.bias.grad, y.grad

    def results(function):
        norm.zero_grad()
        x, y = ramp(64, 256), (ramp(64, 256) / 3).requires_grad_()
        return [each.detach().clone() for each in function(x, y)]

    compiled, expected = torch.compile(f), results(f)
    for _ in range(5):
        for one, other in zip(expected, results(compiled), strict=True):
            assert torch.equal(one, other)


def test_calls_that_always_run_alone_run_at_once():
    def f(x, w):
        return (x @ w).sin() @ w

    x, w = ramp(100, 100) / 100, ramp(100, 100) / 100
    compiled = torch.compile(f)
    for _ in range(40):
        assert torch.equal(compiled(x, w), f(x, w))
    before = torch._C._recording_counts()["calls"]
    compiled(x, w)
    assert torch._C._recording_counts()["calls"] == before


def test_what_is_laid_out_otherwise_is_other_code():
    def f(x, y):
        return (x.sin() * y + 1).tanh()

    for x, y in (
        (ramp(100, 80), ramp(100, 80)), (ramp(100, 80), ramp(80)), (ramp(100, 80), ramp(100, 1)), (ramp(80, 100).t(), ramp(100, 80)),
        (ramp(101, 83), ramp(101, 83)), (ramp(8001)[1:], ramp(8000)), (ramp(20, 10, 40)[:, ::2], ramp(20, 5, 1)), (ramp(4096), ramp(1)),
    ):  # fmt: skip
        for _ in range(3):
            assert torch.equal(torch.compile(f)(x, y), f(x, y))


def test_in_place_changes_and_views():
    def f(x):
        x.mul_(2).add_(1)
        y = x[10:] * 3
        x[:10].zero_()
        return x + 0, y

    a, b = ramp(300, 100), ramp(300, 100)
    expected, found = f(a), torch.compile(f)(b)
    assert torch.equal(a, b)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


def test_training_gives_the_same_gradients():
    def step(x, w):
        y = torch.nn.functional.gelu(x @ w) * torch.sigmoid(x)
        loss = (y * y + y.abs()).mean()
        loss.backward()
        w.grad, found = None, w.grad
        return loss.detach(), found

    x = ramp(256, 256) / 50
    w = (ramp(256, 256) / 50).requires_grad_()
    for a, b in zip(step(x, w), torch.compile(step)(x, w), strict=True):
        assert torch.equal(a, b)


def test_streams_and_events_come_after_what_was_put_off():
    side = torch.cuda.Stream()

    def f(x):
        y = (x * 2 + 1).sin()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = y * 3 + 1
        torch.cuda.current_stream().wait_stream(side)
        z.record_stream(torch.cuda.current_stream())
        return z - y

    x = ramp(1 << 20)
    for _ in range(5):
        assert torch.equal(torch.compile(f)(x), f(x))


def test_a_graph_captures_a_compiled_function():
    f = torch.compile(lambda x: (x * 2 + 1).sin() * x)
    x = ramp(1 << 16)
    f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    x.add_(1)
    graph.replay()
    assert torch.equal(y, (x * 2 + 1).sin() * x)


def test_the_peak_of_memory_is_no_higher_than_eager_execution():
    def chain(x):
        for _ in range(12):
            x = (x * 1.5 + 1).sin()
        return x

    def peak(f):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        f(x)
        return torch.cuda.max_memory_allocated() - before

    x = ramp(1 << 20)
    assert peak(torch.compile(chain)) <= peak(chain)
    assert peak(torch.compile(chain)) < 3 * x.nbytes


def test_explain_says_what_became_one_loop():
    said = str(torch.explain(torch.compile(lambda x: (x * 2 + 1).sin()), ramp(N)))
    assert "on cuda:0: 3 calls" in said and "(register)" in said
