"""nn.init: torch's values from the same seed, and what it refuses."""

import json
import math
import platform
import warnings
from pathlib import Path

import mica
import pytest
from mica.nn import init

_FILE = json.loads((Path(__file__).parent.parent / "recorded" / "modules.json").read_text())
# Torch's normal numbers differ between processors in their last bits, and Mica's with them.
RECORDED = {**_FILE["init"], **_FILE["init_on"].get(platform.machine(), {})}


@pytest.mark.parametrize("case", RECORDED)
def test_values_are_torchs(case):
    name, text = case.split(": ", 1)
    shape, *arguments = eval(f"({text},)")
    mica.manual_seed(3)
    tensor = mica.empty(shape, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled = getattr(init, name)(tensor, *arguments)
    assert filled is tensor and tensor.is_leaf and tensor.requires_grad
    expected = mica.tensor(RECORDED[case]).reshape(shape)
    if name == "orthogonal_":  # computed, not drawn
        assert mica.allclose(tensor, expected, atol=1e-5)
    else:
        assert mica.equal(tensor, expected)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (33, 33), (100, 70), (20, 65), (64, 32)])
@pytest.mark.parametrize("dtype", [mica.float32, mica.float64])
def test_orthogonal_matrices_are(rows, columns, dtype):
    q = init.orthogonal_(mica.empty(rows, columns, dtype=dtype))
    q = q if rows >= columns else q.t()
    assert mica.allclose(q.t() @ q, mica.eye(q.size(1), dtype=dtype), atol=1e-6 if dtype == mica.float32 else 1e-13)


def test_gains():
    assert init.calculate_gain("relu") == math.sqrt(2) and init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2.0 / (1 + 0.2**2))
    assert init.calculate_gain("leaky_relu") == math.sqrt(2.0 / (1 + 0.01**2))
    assert init.calculate_gain("selu") == 0.75 and init.calculate_gain("conv_transpose3d") == 1
    with pytest.raises(ValueError, match="Unsupported nonlinearity other"):
        init.calculate_gain("other")
    for slope in (True, "x"):
        with pytest.raises(ValueError, match=f"negative_slope {slope} not a valid number"):
            init.calculate_gain("leaky_relu", slope)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: init.xavier_uniform_(mica.empty(3)), "Fan in and fan out can not be computed for tensor with fewer"),
        (lambda: init.kaiming_normal_(mica.empty(3, 3), mode="out"), "Mode out not supported, please use one of"),
        (lambda: init.kaiming_uniform_(mica.empty(3, 3), nonlinearity="x"), "Unsupported nonlinearity x"),
        (lambda: init.eye_(mica.empty(3)), "Only tensors with 2 dimensions are supported"),
        (lambda: init.dirac_(mica.empty(3, 3)), "Only tensors with 3, 4, or 5 dimensions are supported"),
        (lambda: init.dirac_(mica.empty(3, 3, 3), 2), "dim 0 must be divisible by groups"),
        (lambda: init.orthogonal_(mica.empty(3)), "Only tensors with 2 or more dimensions are supported"),
        (lambda: init.sparse_(mica.empty(3), 0.1), "Only tensors with 2 dimensions are supported"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_generators_meta_and_empty_tensors():
    generator = mica.Generator().manual_seed(5)
    first = init.kaiming_uniform_(mica.empty(3, 3), generator=generator)
    generator.manual_seed(5)
    assert mica.equal(first, init.kaiming_uniform_(mica.empty(3, 3), generator=generator))
    for name in ("kaiming_uniform_", "trunc_normal_", "orthogonal_", "uniform_"):
        getattr(init, name)(mica.empty(3, 3, device="meta"))
    for name in ("kaiming_uniform_", "kaiming_normal_"):
        with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
            getattr(init, name)(mica.empty(0, 3))
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        init.trunc_normal_(mica.empty(2), mean=9.0)


def test_old_names_warn():
    with pytest.warns(FutureWarning, match="`nn.init.constant` is now deprecated in favor of `nn.init.constant_`."):
        assert init.constant(mica.empty(2), 3.0).tolist() == [3, 3]
    assert set(init.__all__) >= {"uniform", "normal", "eye", "dirac", "orthogonal", "sparse", "kaiming_normal"}


def test_fans():
    assert init._calculate_fan_in_and_fan_out(mica.empty(2, 3, 4, 5)) == (60, 40)
    assert init._calculate_correct_fan(mica.empty(2, 3), "FAN_OUT") == 2
