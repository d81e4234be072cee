"""Normalisations beside torch's, live: values, gradients, running statistics, layouts, sizes, dtypes, errors."""

import mica
import numpy as np
import pytest
from layer_cases import NORMS, run

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from both_libraries import errors_begin_alike  # noqa: E402

TOLERANCE = {"float64": 1e-9, "float32": 5e-5, "bfloat16": 6e-2, "float16": 1e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("constructor,inputs", NORMS)
def test_same_as_torch(constructor, inputs, dtype):
    try:
        theirs = run(torch, constructor, inputs, dtype)
    except (RuntimeError, NotImplementedError):
        return  # torch has no such kernel; Mica may
    ours = run(mica, constructor, inputs, dtype)
    pairs = list(zip(ours["outputs"] + ours["gradients"], theirs["outputs"] + theirs["gradients"], strict=True))
    pairs += [(ours["buffers"][name], value) for name, value in theirs["buffers"].items()]
    for a, b in pairs:
        assert (a is None) == (b is None)
        if a is None:
            continue
        assert a[0] == b[0]
        scale = max(1.0, np.abs(b[1]).max(initial=0))
        np.testing.assert_allclose(a[1], b[1], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


SHAPES = [(64, 10), (1000, 3), (3, 300), (16, 32, 28, 28), (2, 3, 7, 5), (8, 5, 1000), (2, 17, 3, 4, 5), (5, 4, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "strided"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("mixed", ["float32", "bfloat16", "bfloat16 beside float32"])
def test_batch_norm_of_many_shapes(shape, layout, training, mixed):
    rng = np.random.default_rng(0)
    x0 = rng.standard_normal(shape, dtype=np.float32) * 3 + 7
    channels = [rng.standard_normal(shape[1], dtype=np.float32) for _ in range(4)]
    g0 = rng.standard_normal(shape, dtype=np.float32)
    results = []
    for library in (mica, torch):
        kind = getattr(library, mixed.split()[0])
        x, g = (library.from_numpy(a.copy()).to(kind) for a in (x0, g0))
        parameter = library.float32 if "beside" in mixed else kind
        w, b, m, v = (library.from_numpy(c.copy()).to(parameter) for c in channels)
        if library is torch:  # whose 16-bit statistics are less exact than ours
            x, g, w, b, m, v = (t.double() for t in (x, g, w, b, m, v))
        if layout == "channels_last" and len(shape) in (4, 5):
            format = library.channels_last if len(shape) == 4 else library.channels_last_3d
            x = x.contiguous(memory_format=format)
        elif layout == "strided":
            x = x.transpose(0, -1).contiguous().transpose(0, -1)
        x.requires_grad_()
        v = v.abs() + 0.5
        w.requires_grad_()
        b.requires_grad_()
        y = library.nn.functional.batch_norm(x, m, v, w, b, training, 0.2, 1e-4)
        y.backward(g)
        assert y.is_contiguous() or layout == "channels_last"
        results.append([t.detach().float().numpy() for t in (y, x.grad, w.grad, b.grad, m, v)])
    tolerance = 3e-5 if mixed == "float32" else 2e-2
    for ours, theirs in zip(*results, strict=True):
        scale = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("shape,groups", [((4, 6), 3), ((2, 32, 14, 14), 8), ((3, 12, 1000), 4), ((2, 4, 3, 3, 2), 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_of_many_shapes(shape, groups, affine):
    rng = np.random.default_rng(0)
    x0, g0 = (rng.standard_normal(shape, dtype=np.float32) * 3 + 2 for _ in range(2))
    w0, b0 = (rng.standard_normal(shape[1], dtype=np.float32) for _ in range(2))
    results = []
    for library in (mica, torch):
        x, w, b = (library.from_numpy(a.copy()).requires_grad_() for a in (x0, w0, b0))
        y = library.nn.functional.group_norm(x, groups, w if affine else None, b if affine else None)
        y.backward(library.from_numpy(g0.copy()))
        results.append([t.detach().numpy() for t in ((y, x.grad, w.grad, b.grad) if affine else (y, x.grad))])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=5e-5, atol=5e-5 * max(1.0, np.abs(theirs).max()))


ERRORS = [
    "F.batch_norm(r(1, 3), None, None, training=True)",
    "F.batch_norm(r(2, 3), None, None)",
    "F.batch_norm(r(2, 3), r(2), r(3))",
    "F.batch_norm(r(2, 3), r(3), r(3), weight=r(2))",
    "F.batch_norm(r(3), None, None, training=True)",
    "F.batch_norm(r(2, 3), r(3), r(3), eps=-1.0)",
    "F.batch_norm(r(2, 3), None, None, training=True, eps=0.0)",
    "F.batch_norm(r(2, 3).double(), r(3), r(3))",
    "F.batch_norm(r(2, 3), r(3).double(), r(3))",
    "F.batch_norm(r(2, 3).bfloat16(), r(3), r(3), r(3).bfloat16(), r(3).bfloat16())",
    "F.batch_norm(r(2, 3).long(), r(3), r(3))",
    "F.group_norm(r(2, 6, 3), 4)",
    "F.group_norm(r(2, 6, 3), 2, weight=r(3))",
    "F.group_norm(r(6), 2)",
    "F.group_norm(r(1, 2), 2)",
    "F.group_norm(r(2, 6, 3), 2, weight=r(6).double())",
    "F.instance_norm(r(2, 3, 1))",
    "F.instance_norm(r(2, 3))",
    "F.instance_norm(r(2, 3, 4), use_input_stats=False)",
    "F.instance_norm(r(2, 3, 4), r(3))",
    "nn.BatchNorm1d(3)(r(2))",
    "nn.BatchNorm2d(3)(r(2, 3))",
    "nn.BatchNorm3d(3)(r(2, 3))",
    "nn.SyncBatchNorm(3)(r(3))",
    "nn.InstanceNorm1d(3)(r(2))",
    "nn.InstanceNorm2d(3, affine=True)(r(2, 4, 5, 5))",
    "nn.InstanceNorm3d(3)(r(2))",
    "nn.GroupNorm(2, 5)",
    "nn.LayerNorm(4)(r(2, 3))",
]


@pytest.mark.parametrize("expression", ERRORS)
def test_errors_begin_with_torchs_words(expression):
    errors_begin_alike(expression, 5)
