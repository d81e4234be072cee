"""Compiled functions that are replayed as CUDA graphs: torch.compile(mode="reduce-overhead")."""

import gc
import sys
import weakref
from pathlib import Path

import mica
import mica as torch
import pytest
from mica._dynamo.replay import Replayed

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
from replay_cases import agree, model, reasons, replays
from replay_objects import CASES

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


def made(function):
    return Replayed(function, torch._C._CompiledCall(function, False))


@pytest.mark.parametrize("case", CASES)
def test_replay(case):
    CASES[case](made, "cuda")


def test_the_mode_of_compile():
    plain = model("cuda")
    for mode in ("reduce-overhead", "max-autotune"):
        compiled = torch.compile(plain, mode=mode)
        agree(compiled, plain, "cuda")
        assert replays(compiled._captured) == 1
    compiled = torch.compile(lambda x: x * 2 + 1, mode="reduce-overhead")
    agree(compiled, lambda x: x * 2 + 1, "cuda")
    for i in range(9):  # calls on the CPU are replayed as lists
        assert compiled(torch.tensor(float(i))).item() == 2 * i + 1


def test_explanations_and_reset():
    compiled = torch.compile(lambda x: x * 2, mode="reduce-overhead")
    agree(compiled, lambda x: x * 2, "cuda")
    x = torch.ones(3, device="cuda")
    assert "replay: 1 graphs" in str(mica.explain(compiled, x))
    asking = torch.compile(lambda x: x * x.sum().item(), mode="reduce-overhead")
    agree(asking, lambda x: x * x.sum().item(), "cuda")
    assert "it cannot be captured" in str(mica.explain(asking, x))
    torch._dynamo.reset()
    assert replays(compiled._captured) == 0
    agree(compiled, lambda x: x * 2, "cuda")


def test_values_are_asked_for():
    def plain(x):
        return x * 2 if x.sum().item() > 20 else x - 1

    function = made(plain)
    agree(function, plain, "cuda")
    assert replays(function) == 0
    assert "captured" in reasons(function)


def test_a_tensor_from_the_host():
    function = made(lambda x: x + torch.tensor([1.0, 2.0, 3.0]).cuda())
    agree(function, lambda x: x + torch.tensor([1.0, 2.0, 3.0], device="cuda"), "cuda")
    assert replays(function) == 0


def test_a_capture_that_fails_changes_nothing():
    """Calls that are pending when it fails are not run: the function runs again, without a capture."""
    state = torch.zeros(4096, device="cuda")

    def plain(x):
        state.add_(1)
        state.mul_(1.0)
        y = (x * 2 + 1).relu()
        return y + torch.tensor([1.0, 2.0, 3.0]).cuda() + state[:3]

    function, reference = made(plain), torch.arange(6.0, device="cuda").reshape(2, 3)
    for i in range(1, 10):
        want = (reference * 2 + 1).relu() + torch.tensor([1.0, 2.0, 3.0], device="cuda") + i
        assert torch.equal(function(reference), want)
        assert torch.equal(state, torch.full_like(state, float(i)))
    assert replays(function) == 0
    assert "captured" in reasons(function)
    other = made(lambda x: x * 2)
    agree(other, lambda x: x * 2, "cuda")
    assert replays(other) == 1


def test_a_graph_of_ones_own_that_fails():
    state = torch.zeros(4096, device="cuda")
    compiled = torch.compile(lambda x: (state.add_(1), (x * 2 + 1).relu() + torch.ones(3).cuda())[1])
    graph, x = torch.cuda.CUDAGraph(), torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(graph):
        compiled(x)
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.equal(state, torch.zeros_like(state))
    assert torch.equal(compiled(x), torch.full_like(x, 4))
    assert torch.equal(state, torch.ones_like(state))


def test_random_numbers_go_on():
    drop = torch.nn.Dropout(0.5)
    function = made(drop)
    x = torch.ones(1000, device="cuda")
    torch.manual_seed(5)
    want = [drop(x) for _ in range(9)]
    torch.manual_seed(5)
    got = [function(x) for _ in range(9)]
    assert replays(function) == 1, reasons(function)
    assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True))
    assert not torch.equal(got[-1], got[-2])


def test_state_on_the_gpu_changes():
    class Cache(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept, self.length = torch.zeros(8, device="cuda"), torch.zeros((), dtype=torch.int64, device="cuda")

        def forward(self, x):
            self.kept.index_copy_(0, self.length.reshape(1), x)
            self.length.add_(1)
            return self.kept * 2

    plain, function = Cache(), made(Cache())
    for i in range(8):
        x = torch.full((1,), float(i + 1), device="cuda")
        version = function.function.kept._version
        assert torch.equal(function(x), plain(x))
        assert function.function.kept._version > version
    assert replays(function) == 1, reasons(function)
    assert function.function.length.item() == 8


def test_streams():
    plain = model("cuda")
    function = made(plain)
    agree(function, plain, "cuda")
    side = torch.cuda.Stream()
    for i in range(20):
        with torch.cuda.stream(side if i % 2 else torch.cuda.default_stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            agree(function, plain, "cuda", calls=1)
    torch.cuda.synchronize()
    assert replays(function) == 1, reasons(function)


class Kept:
    def __init__(self):
        self.memory = torch.ones(3, device="cuda")


def test_arguments_are_not_kept_alive():
    function, gone = made(lambda x, kept: {"x": x + kept.memory, "kept": kept}), []
    for i in range(3):
        kept = Kept()
        for _ in range(9):
            x = torch.full((3,), float(i), device="cuda")
            found = function(x, kept)
            assert found["kept"] is kept
            assert torch.equal(found["x"], x + 1)
        assert replays(function) == 1, reasons(function)
        gone += [weakref.ref(kept), weakref.ref(kept.memory)]
        del kept, found
        gc.collect()
        assert not function._kinds
    assert all(each() is None for each in gone)


def test_memory_does_not_grow():
    plain = model("cuda")
    function = made(plain)
    agree(function, plain, "cuda")
    x = torch.ones(2, 3, device="cuda")
    function(x)
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        function(x)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_one_row_side_by_side(dtype, bias):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(1024, n, bias=bias, device="cuda", dtype=dtype) for n in (1024, 256, 64, 8, 4000, 4000)]
    back = torch.nn.Linear(1024, 1024, bias=bias, device="cuda", dtype=dtype)
    last = torch.nn.Linear(4000, 1024, bias=bias, device="cuda", dtype=dtype)

    @torch.no_grad()
    def plain(x):
        h = x * 2 + 1
        a, b, c, d, e, f = (layer(h) for layer in layers)
        y = x + back(a)  # a product of a product, and one whose row is changed before it is asked for
        z = last(torch.nn.functional.silu(e) * f)
        h.mul_(0)
        return y + z, b * 2, c, d, h

    function = made(plain)
    for i in range(9):
        x = torch.randn(1, 1, 1024, device="cuda", dtype=dtype) / (i + 1)
        for found, wanted in zip(function(x), plain(x), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1
    launches = str(mica.explain(torch.compile(plain), x))
    assert "matmul" not in launches  # they are put off where a graph is captured alone


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(1, 8, 1, 64), (2, 3, 5, 24), (7, 6)])
def test_rows_that_are_put_together_of_halves(dtype, shape):
    cosine, sine = torch.rand(2, shape[-1], device="cuda", dtype=dtype)

    def rotated(t):
        a, b = t.chunk(2, -1)
        return t * cosine + torch.cat((-b, a), -1) * sine

    @torch.no_grad()
    def plain(x, y):
        both = torch.cat((x, y), -1)
        both[..., : shape[-1]].add_(1)  # half of it is changed after it was put together
        thirds = torch.cat((x * 2, y, x), -1) + 1
        return (
            rotated(x * 3),
            rotated(y.transpose(0, 1).contiguous().transpose(0, 1)),
            both * 2,
            thirds,
            rotated(rotated(y)),
        )

    function = made(plain)
    for i in range(9):
        x, y = (torch.randn(shape, device="cuda", dtype=dtype) * (i + 1) for _ in range(2))
        for found, wanted in zip(function(x, y), plain(x, y), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("count", [7, 64, 250, 2048, 5001, 8190, 9000])
def test_short_loops_and_sums_of_a_row_one_after_the_other(dtype, count):
    torch.manual_seed(count)
    weight = torch.randn(count, device="cuda", dtype=dtype)

    def norm(x):
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(dtype)

    @torch.no_grad()
    def plain(x, y):
        x = x + y
        first = norm(x)
        x = x + first
        total = x.float().sum(-1)
        second = norm(x) * 2
        x.mul_(2)  # what was read before is changed
        few = second[..., :3].exp() + total
        middle = x.float() - x.float().mean()
        return first, second, x.clone(), few, middle, (middle * middle).sum() / 3, x.to(torch.float64).mean()

    function = made(plain)
    for i in range(9):
        x, y = (torch.randn(1, 1, count, device="cuda", dtype=dtype) / (i + 1) for _ in range(2))
        for found, wanted in zip(function(x, y), plain(x, y), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_short_loops_side_by_side(rows):
    """Loops of one kernel that share no memory run at the same time; those that do, one after the other."""

    def function_of(halves, turned, row):
        @torch.no_grad()
        def plain(x, y):
            a, b = x.sin(), y.cos() * 2  # share nothing
            halves[:, :16] = x[:, :16] + 1
            halves[:, 16:] = y[:, 16:] * 3  # lies between what the line before wrote
            c = halves * 2  # reads both
            halves[:, 8:24] = a[:, 8:24]  # is written over
            turned.t()[:, :rows] = x.t()
            row[::2] = x[0, ::2]
            row[1::2] = y[0, ::2]
            row[1:9] += row[:8].clone()
            return a, b, c, halves * 1, turned + 0, row - 1, a + b

        return plain

    def state():
        return (torch.zeros(n, device="cuda") for n in ((rows, 32), (rows, 32), 32))

    plain, function = function_of(*state()), made(function_of(*state()))
    for i in range(9):
        x, y = (torch.randn(rows, 32, device="cuda") * (i + 1) for _ in range(2))
        for found, wanted in zip(function(x, y), plain(x, y), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1


def test_sums_of_what_is_no_single_row():
    @torch.no_grad()
    def plain(x):
        y = x * 2
        return y.sum(0), y.mean(1), y.sum(), y.t().sum(1), y[:, 3].sum(), y[1, 1:].mean(), y.half().sum()

    function = made(plain)
    for i in range(9):
        x = torch.randn(6, 40, device="cuda") * (i + 1)
        for found, wanted in zip(function(x), plain(x), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1


def test_more_short_loops_than_one_kernel_takes():
    @torch.no_grad()
    def plain(x):
        out = []
        for i in range(40):
            x = (x.softmax(-1) if i % 20 == 19 else x * 1.5 + i / 7) - x.mean()
            out.append(x[: i + 1].sin())
        return out

    function = made(plain)
    for i in range(9):
        x = torch.randn(64, device="cuda") * (i + 1)
        for found, wanted in zip(function(x), plain(x), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("turned", [False, True])
def test_writes_to_a_place_that_a_number_says(dtype, turned):
    def cache():
        made = torch.zeros(1, 3, 7, 24, device="cuda", dtype=dtype)
        return made.transpose(1, 2).contiguous().transpose(1, 2) if turned else made

    def rotated(t):
        a, b = t.chunk(2, -1)
        return t * 0.5 + torch.cat((-b, a), -1) * 2

    def function_of(keys, values, row):
        @torch.no_grad()
        def plain(x, place):
            keys.index_copy_(2, place, rotated(x))
            values[:, :, place] = x + 1
            values[:, :, place - 3] = 2.5 * x  # from the end, at times
            row[place] = x[0, 0, 0, :1] * 3
            seen = keys[:, :, 1] * 2
            keys.index_copy_(2, place, rotated(x) + 1)
            return seen, keys * 1, values + 0, row.clone()

        return plain

    theirs, ours = ((cache(), cache(), torch.zeros(7, device="cuda", dtype=dtype)) for _ in range(2))
    plain, function = function_of(*theirs), made(function_of(*ours))
    for i in range(12):
        x, place = torch.randn(1, 3, 1, 24, device="cuda", dtype=dtype), torch.tensor([i % 7], device="cuda")
        for found, wanted in zip(function(x, place), plain(x, place), strict=True):
            assert torch.equal(found, wanted)
    assert replays(function) == 1


def test_a_place_that_there_is_not_is_reported():
    kept = torch.zeros(5, 8, device="cuda")

    @torch.no_grad()
    def plain(x, place):
        kept.index_copy_(0, place, x * 2 + 1)
        return x + 1

    function = made(plain)
    x = torch.ones(1, 8, device="cuda")
    for i in range(9):
        function(x, torch.tensor([i % 5], device="cuda"))
    assert replays(function) == 1
    before = kept.clone()
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 5"):
        function(x * 2, torch.tensor([5], device="cuda"))
        torch.cuda.synchronize()
    assert torch.equal(kept, before)
