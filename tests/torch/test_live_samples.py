"""Every sample on torch and on Mica for every dtype: the same values, dtypes and shapes, or an error from both."""

import platform
import warnings

import mica
import pytest
from sample_runner import Evaluator, load_samples, tensors_of

pytestmark = pytest.mark.torch
DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "int64", "int32", "uint8", "bool")
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 2e-2, "float16": 2e-3, "complex128": 1e-9}


def outcome(module, text, dtype):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = tensors_of(Evaluator(module, dtype=dtype).run(text))
    except Exception as e:
        return e
    return [(tuple(t.shape), str(t.dtype), t.detach().reshape(-1).tolist()) for t in results]


def as_complex(v):
    return complex(v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sample", load_samples(), ids=lambda s: s.id)
def test_same_as_torch(sample, dtype):
    torch = pytest.importorskip("torch")
    if sample.op == "topk" and dtype in ("int64", "int32", "uint8", "bool"):
        return  # among equal elements torch names any index; tests/ops/test_sorting.py holds ours
    if sample.op == "grid_sample" and dtype in ("bfloat16", "float16"):
        return  # torch works out the points in 16 bits, Mica in 32; tests/nn/test_upsampling.py holds ours
    if "matrix_exp" in sample.op and dtype in ("bfloat16", "float16"):
        return  # torch's own overflow; test_samples.py holds ours to float64
    if sample.op.startswith("conv") and dtype == "float16" and platform.machine() == "aarch64":
        return  # torch adds in float16 there; test_lower_precision in tests/ops/test_samples.py holds ours
    theirs, ours = outcome(torch, sample.text, dtype), outcome(mica, sample.text, dtype)
    if isinstance(theirs, Exception):
        return  # torch refuses; Mica may take more
    assert not isinstance(ours, Exception), (
        f"torch takes {sample.text} in {dtype}, Mica says {type(ours).__name__}: {ours}"
    )
    for (shape, kind, values), (our_shape, our_kind, our_values) in zip(theirs, ours, strict=True):
        assert shape == our_shape and kind == our_kind
        tolerance = TOLERANCE.get(dtype, 1e-5)
        for x, y in zip(values, our_values, strict=True):
            x, y = as_complex(x), as_complex(y)
            scale = max(1.0, abs(x)) if abs(x) != float("inf") else 1.0
            assert x == y or (x != x and y != y) or abs(x - y) <= tolerance * scale, (sample.text, dtype, x, y)
