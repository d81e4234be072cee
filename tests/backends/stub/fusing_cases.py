"""What test_stub_backend.py runs in a process of its own: compiled functions on a backend that fuses calls.

tests/backends/stub/fusing_backend.cpp follows fused loops with the CPU's kernels, so that results have eager's bits. A
plan is kept when the same calls come for the second time, and found again the third time.
"""

import sys
from pathlib import Path

import mica as torch
import pytest
from mica._dynamo.replay import Replayed

sys.path.insert(0, str(Path(__file__).parents[2] / "compiler"))
from random_programs import Program, same
from replay_objects import CASES as REPLAYED
from test_replay import Again

LIBRARIES = Path(torch._C.__file__).parents[2] / "tests" / "backends"
N = 3000
CALLS = 4


@pytest.fixture(scope="module", autouse=True)
def fusing():
    assert torch.backends.open(LIBRARIES / "libmica_fusing.so") == "fusing"


def ramp(*shape, dtype=torch.float32):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.float64).reshape(shape) / 7 % 11 - 5).to(dtype).to("fusing")


def counted(function, *arguments):
    before = torch._C._recording_counts()
    found = function(*arguments)
    return found, {name: value - before[name] for name, value in torch._C._recording_counts().items()}


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_programs_give_the_same_bits(first):
    for seed in range(first, first + 50):
        program = Program(seed, "fusing")
        expected = program.run(program.inputs())
        for call in range(CALLS):
            found = torch.compile(program.run)(program.inputs())
            for i, (a, b) in enumerate(zip(expected, found, strict=True)):
                assert same(a, b), f"program {seed}, call {call}, result {i}"


def test_a_chain_is_one_loop_each_time():
    def chain(x, y):
        return torch.sigmoid((x * 2 + 1).sin() * y - x / 3).mul(y).add(x).clamp(-1, 1)

    compiled = torch.compile(chain)
    x, y = ramp(N), ramp(N).flip(0)
    for _ in range(CALLS):
        found, ran = counted(compiled, x, y)
        assert torch.equal(found, chain(x, y))
        assert ran["calls"] == 10 and ran["loops"] == 1 and ran["flushes"] == 1 and ran["dead"] == 0
        assert ran["bytes_kept_out_of_memory"] == 9 * 4 * N


def test_numbers_are_those_of_the_call():
    def f(x, y, a, b):
        z = torch.add(x, y, alpha=a) * b
        return z.clamp(-b, b), torch.addcmul(x + b, x, y, value=a), (y - a) / b

    compiled = torch.compile(f)
    x, y = ramp(N), ramp(N).flip(0)
    for call in range(2 * CALLS):
        a, b = 1 + call // 2, 0.5 + call  # a factor of one is another kernel's
        for one, other in zip(f(x, y, a, b), compiled(x, y, a, b), strict=True):
            assert torch.equal(one, other)


def test_numbers_of_calls_that_run_alone():
    def f(x, y, a):
        return x * a, y[:, ::3] + a  # of two shapes: two loops of one call

    compiled = torch.compile(f)
    x, y = ramp(N), ramp(50, 300)
    for call in range(CALLS):
        for one, other in zip(f(x, y, call + 0.5), compiled(x, y, call + 0.5), strict=True):
            assert torch.equal(one, other)


def test_dimensions_of_one_element_and_halves():
    def rotated(x, cosine, sine, a):
        left, right = x.chunk(2, -1)
        return (x * a) * cosine + torch.cat((-right, left), -1) * sine, (x + a)[:, :, :1] * a

    compiled = torch.compile(rotated)
    x, cosine, sine = ramp(1, 1, 40, 128), ramp(40, 128), ramp(1, 40, 128)
    for call in range(CALLS):
        for one, other in zip(rotated(x, cosine, sine, call + 0.5), compiled(x, cosine, sine, call + 0.5), strict=True):
            assert torch.equal(one, other)


def test_results_that_somebody_keeps_are_other_plans():
    kept = []

    def f(x, keep):
        y = x * 2
        if keep:
            kept.append(y)
        return (y + 1).relu()

    compiled = torch.compile(f)
    x = ramp(N)
    for keep in (False, False, True, False, True, True, False):
        found, ran = counted(compiled, x, keep)
        assert torch.equal(found, (x * 2 + 1).relu())
        assert ran["bytes_kept_out_of_memory"] == 4 * N * (1 if keep else 2)
    assert len(kept) == 3 and all(torch.equal(each, x * 2) for each in kept)


def test_other_shapes_strides_and_dtypes_are_other_plans():
    def f(x, y):
        return (x.sin() * y + 1).tanh() - x

    compiled = torch.compile(f)
    for _ in range(CALLS):
        for x, y in (
            (ramp(50, 80), ramp(50, 80)), (ramp(50, 80), ramp(80)), (ramp(50, 80), ramp(50, 1)), (ramp(80, 50).t(), ramp(50, 80)),
            (ramp(4001)[1:], ramp(4000)), (ramp(4001)[:-1], ramp(4000)), (ramp(50, 80, dtype=torch.float16), ramp(50, 80, dtype=torch.float16)),
            (ramp(50, 80, dtype=torch.bfloat16), ramp(50, 80)),
        ):  # fmt: skip
            assert torch.equal(compiled(x, y), f(x, y))


def test_one_tensor_in_two_places_is_another_plan():
    def f(x, y, out):
        out.mul_(0.5).add_(x * y + 1)
        return out - y

    compiled = torch.compile(f)
    for _ in range(CALLS):
        for pick in ((0, 1, 2), (0, 0, 2), (0, 2, 2), (2, 2, 2)):
            here, there = ([ramp(N), ramp(N).flip(0), ramp(N) * 2] for _ in range(2))
            assert torch.equal(f(*(here[i] for i in pick)), compiled(*(there[i] for i in pick)))
            assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_an_optimizer_by_hand_with_numbers_of_each_step():
    def step(p, g, m, v, t):
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.addcdiv_(m, v.sqrt().div_((1 - 0.99**t) ** 0.5).add_(1e-8), value=-1e-2 / (1 - 0.9**t))

    compiled = torch.compile(lambda lists, t: [step(*each, t) for each in zip(*lists, strict=True)])
    here, there = ([[ramp(60, 60) * (i + 1) for i in range(3)] for _ in range(4)] for _ in range(2))
    for one in (here, there):
        one[3] = [each.abs() for each in one[3]]
    for t in range(1, 7):
        for each in zip(*here, strict=True):
            step(*each, t)
        compiled(there, t)
        for a, b in zip(here, there, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_many_kinds_of_calls():
    def f(x):
        return (x * 2 + 1).sin() * x

    compiled = torch.compile(f)
    for _ in range(3):
        for n in range(2048, 2048 + 1200):  # more than are kept
            x = torch.ones(n, device="fusing")
            found = compiled(x)
        assert torch.equal(found, f(x))


def test_calls_that_always_run_alone_are_not_put_off():
    def lone(x, w):
        return (x @ w).sin() @ w

    def together(x, w):
        return ((x @ w).sin() * 2 + 1).relu()

    x, w = ramp(70, 70), ramp(70, 70) / 70
    compiled, other = torch.compile(lone), torch.compile(together)
    assert counted(compiled, x, w)[1]["calls"] == 1
    for _ in range(20):
        compiled(x, w)
    for _ in range(30):
        found, ran = counted(compiled, x, w)
        assert torch.equal(found, lone(x, w)) and ran["calls"] == 0
    said = str(torch.explain(compiled, x, w))
    assert "1 calls" in said  # who asks sees what the function puts off
    # A sine of that kind which does not run alone is noticed in a while.
    for _ in range(70):
        found, ran = counted(other, x, w)
        assert torch.equal(found, together(x, w))
    assert ran["calls"] == 4 and ran["loops"] == 1


def test_training_gives_the_same_gradients():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64), torch.nn.SiLU()
    ).to("fusing")
    compiled = torch.compile(model)

    def gradients(f, x):
        model.zero_grad()
        y = f(x)
        (y * y + y.abs()).mean().backward()
        return [p.grad.clone() for p in model.parameters()]

    x = ramp(64, 64)
    for _ in range(CALLS):
        assert all(torch.equal(a, b) for a, b in zip(gradients(model, x), gradients(compiled, x), strict=True))


@pytest.mark.parametrize("case", [each for each in REPLAYED if each.startswith("objects")])
def test_replayed_functions(case):
    REPLAYED[case](lambda function: Replayed(function, torch._C._CompiledCall(function, False), (Again,)), "fusing")
