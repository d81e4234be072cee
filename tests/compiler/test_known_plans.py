"""Plans that are kept for the next recording of the same calls: results have eager's bits each time, whatever has changed.

A plan is kept when its calls come for the second time, and found from the third time on.
"""

import mica as torch
import pytest
from random_programs import Program, same

CALLS = 4
N = 20_000


@pytest.fixture(autouse=True)
def every_call_is_put_off():
    before = torch._C._set_least_recorded_elements(1)
    yield
    torch._C._set_least_recorded_elements(before)


def ramp(*shape, dtype=torch.float32):
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.float64).reshape(shape) / 7 % 11 - 5).to(dtype)


def counted(function, *arguments):
    before = torch._C._recording_counts()
    found = function(*arguments)
    return found, {name: value - before[name] for name, value in torch._C._recording_counts().items()}


def assert_equal(ones, others):
    for one, other in zip(ones, others, strict=True):
        assert torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(one.isnan(), other.isnan())


@pytest.mark.parametrize("first", range(10_000, 10_200, 50))
def test_random_programs(first):
    for seed in range(first, first + 50):
        program = Program(seed)
        expected = program.run(program.inputs())
        for call in range(CALLS):
            found = torch.compile(program.run)(program.inputs())
            for i, (a, b) in enumerate(zip(expected, found, strict=True)):
                assert same(a, b), f"program {seed}, call {call}, result {i}"


def test_counts_are_the_same_each_time():
    compiled = torch.compile(lambda x, y: ((x * 2 + y).relu() - 1).abs())
    x, y = ramp(N), ramp(N).flip(0)
    ran = [counted(compiled, x, y)[1] for _ in range(CALLS)]
    assert all(each == ran[0] for each in ran)
    assert ran[0]["calls"] == 5 and ran[0]["loops"] == 1 and ran[0]["bytes_kept_out_of_memory"] == 4 * 4 * N


def test_numbers_are_those_of_the_call():
    def f(x, y, a, b):
        z = torch.add(x, y, alpha=a) * b
        return (
            z.clamp(-b, b), torch.addcmul(x + b, x, y, value=a), (y - a) / b, torch.rsub(x, y, alpha=a), (x * 1) ** a,
            torch.nn.functional.leaky_relu(x * b, a / 8), torch.lerp(x, y + a, b / 8),
        )  # fmt: skip

    compiled = torch.compile(f)
    x, y = ramp(N), ramp(N).flip(0)
    for call in range(3 * CALLS):
        a, b = call // CALLS + 1, 0.5 + call // 2
        assert_equal(f(x, y, a, b), compiled(x, y, a, b))


def test_numbers_of_other_dtypes():
    def f(x, a):
        return x * a + 1, (x + a) // 3, x == a

    compiled = torch.compile(f)
    for dtype in (torch.int64, torch.float64, torch.bfloat16, torch.uint8):
        for call in range(CALLS):
            assert_equal(f(ramp(N).abs().to(dtype), call), compiled(ramp(N).abs().to(dtype), call))


def test_results_that_somebody_keeps():
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


def test_one_tensor_in_two_places():
    def f(x, y, out):
        out.mul_(0.5).add_(x * y + 1)
        return out - y

    compiled = torch.compile(f)
    for _ in range(CALLS):
        for pick in ((0, 1, 2), (0, 0, 2), (0, 2, 2), (2, 2, 2)):
            here, there = ([ramp(N), ramp(N).flip(0), ramp(N) * 2] for _ in range(2))
            assert torch.equal(f(*(here[i] for i in pick)), compiled(*(there[i] for i in pick)))
            assert_equal(here, there)


def test_shapes_strides_and_threads():
    def f(x, y):
        return (x.sin() * y + 1).tanh() - x

    compiled = torch.compile(f)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            for _ in range(CALLS):
                for x, y in (
                    (ramp(50, 80), ramp(50, 80)), (ramp(50, 80), ramp(80)), (ramp(50, 80), ramp(50, 1)), (ramp(80, 50).t(), ramp(50, 80)),
                    (ramp(4001)[1:], ramp(4000)), (ramp(4001)[:-1], ramp(4000)), (ramp(300, 400), ramp(400)),
                ):  # fmt: skip
                    assert torch.equal(compiled(x, y), f(x, y))
    finally:
        torch.set_num_threads(threads)


def test_halves_of_rows():
    def rotated(x, cosine, sine):
        left, right = x.chunk(2, -1)
        return x * cosine + torch.cat((-right, left), -1) * sine

    compiled = torch.compile(rotated)
    x, cosine, sine = ramp(4, 40, 128), ramp(40, 128), ramp(1, 40, 128)
    for _ in range(CALLS):
        assert torch.equal(rotated(x, cosine, sine), compiled(x, cosine, sine))


def test_with_and_without_machine_code():
    def f(x, y):
        return (x * y + 2).relu() / 3

    compiled = torch.compile(f)
    x, y = ramp(N), ramp(N).flip(0)
    for on in (True, False, True):
        before = torch._C._set_generated_code(on)
        try:
            for _ in range(CALLS):
                assert torch.equal(compiled(x, y), f(x, y))
        finally:
            torch._C._set_generated_code(before)


def test_kernels_on_rows():
    def f(x, mean, variance, a):
        m = x.mean(-1, keepdim=True)
        v = ((x - m) * (x - m)).sum(-1, keepdim=True)
        norm = torch.nn.functional.batch_norm(x.unsqueeze(-1), mean, variance, eps=a)
        return (x - m) * (v + a).rsqrt(), (x * a).softmax(-1) + 1, torch.cat((x * a, x), -1).exp(), norm.relu()

    compiled = torch.compile(f)
    x, mean, variance = ramp(60, 64), ramp(64), ramp(64).abs()
    for call in range(2 * CALLS):
        a = 1 + call // 2
        assert_equal(f(x, mean, variance, a), compiled(x, mean, variance, a))
        a = 2.5
        assert_equal(f(x[:50], mean, variance, a), compiled(x[:50], mean, variance, a))


def test_a_convolution_among_the_calls():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.SiLU()).eval()
    compiled = torch.compile(layers)
    with torch.no_grad():
        for n in (2, 3, 2, 2, 2, 3):
            x = ramp(n, 3, 20, 20)
            assert torch.equal(compiled(x), layers(x))
