"""Settings that decide how CUDA computes: how exact float32 is, and whether convolutions repeat their results."""

import os
import subprocess
import sys

import mica
import pytest

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not mica.cuda.is_available(), reason="no GPU")]


def product_error():
    """The distance of a float32 product from the same in float64, relative to its size."""
    mica.manual_seed(0)
    a, b = mica.randn(256, 256, device="cuda"), mica.randn(256, 256, device="cuda")
    exact = a.double() @ b.double()
    return ((a @ b).double() - exact).abs().max().item() / exact.abs().max().item()


# A float32 has 24 bits, a TF32 11: sums of 256 products differ in the seventh digit or in the fourth.
def test_words_for_products_round_their_inputs():
    assert product_error() < 2e-6
    for word in ("high", "medium"):
        mica.set_float32_matmul_precision(word)
        try:
            assert 2e-5 < product_error() < 2e-3
        finally:
            mica.set_float32_matmul_precision("highest")
        assert product_error() < 2e-6
    for word, rounded in (("tf32", True), ("ieee", False)):
        mica.backends.cuda.matmul.fp32_precision = word
        assert (product_error() > 2e-5) == rounded
    with mica.backends.cudnn.flags(enabled=True, fp32_precision="tf32"):  # the products have a setting of their own
        assert product_error() < 2e-6


def gradients(dtype):
    mica.manual_seed(0)
    x = mica.randn(8, 32, 28, 28, device="cuda", dtype=dtype, requires_grad=True)
    w = mica.randn(64, 32, 3, 3, device="cuda", dtype=dtype, requires_grad=True)
    mica.nn.functional.conv2d(x, w, padding=1, stride=2).square().sum().backward()
    return x.grad, w.grad


@pytest.mark.parametrize("dtype", [mica.float32, mica.float16, mica.float64], ids=str)
@pytest.mark.parametrize("by", ["cudnn.deterministic", "use_deterministic_algorithms"])
def test_convolutions_repeat_their_results_where_asked(by, dtype):
    expected = gradients(dtype)
    if by == "cudnn.deterministic":
        mica.backends.cudnn.deterministic = True
    else:
        mica.use_deterministic_algorithms(True)
    try:
        first = gradients(dtype)
        for _ in range(5):
            for a, b in zip(gradients(dtype), first, strict=True):
                assert mica.equal(a, b)
    finally:
        mica.backends.cudnn.deterministic = False
        mica.use_deterministic_algorithms(False)
    tolerance = {mica.float32: 5e-3, mica.float16: 2e-2, mica.float64: 1e-10}[dtype]  # TF32 is allowed in float32
    for a, b in zip(first, expected, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max()


CONVOLUTION = """
import os
import subprocess
import sys

import mica
mica.manual_seed(0)
x, w = mica.randn(4, 16, 20, 20, device="cuda"), mica.randn(24, 16, 3, 3, device="cuda")
y = mica.nn.functional.conv2d(x, w)
assert all(mica.equal(y, mica.nn.functional.conv2d(x, w)) for _ in range(20))  # the choice is kept
expected = mica.nn.functional.conv2d(x.double(), w.double())
assert (y.double() - expected).abs().max() < 5e-3 * expected.abs().max()
"""


def run_convolution(folder, settings=""):
    subprocess.run(
        [sys.executable, "-c", settings + CONVOLUTION], check=True, env=os.environ | {"MICA_CACHE_DIR": str(folder)}
    )


def lines_of(folder):
    (file,) = folder.glob("convolutions-*.txt")
    return [line.split() for line in file.read_text().splitlines()]


def test_the_engine_of_a_convolution_is_remembered(tmp_path):
    folder = tmp_path / "new" / "cache"
    benchmark = "import mica; mica.backends.cudnn.benchmark = True\n"
    run_convolution(folder, benchmark)
    lines = lines_of(folder)
    assert len(lines) == 2 and all(int(compared) > 1 for _, _, compared in lines)  # float32 and float64
    run_convolution(folder, benchmark)
    assert lines_of(folder) == lines  # nothing is compared again


@pytest.mark.parametrize(
    "content", ["nonsense\n", "{name} 1000000 1\n", "{name} -5 -5\n", "{name} 0 10\nhalf a li", ""]
)
def test_a_damaged_memory_of_engines_changes_no_result(tmp_path, content):
    benchmark = "import mica; mica.backends.cudnn.benchmark = True\n"
    run_convolution(tmp_path, benchmark)
    (file,) = tmp_path.glob("convolutions-*.txt")
    file.write_text("".join(content.format(name=name) for name, _, _ in lines_of(tmp_path)))
    run_convolution(tmp_path, benchmark)


def test_a_convolution_works_where_nothing_can_be_remembered(tmp_path):
    run_convolution("/proc/nowhere")
