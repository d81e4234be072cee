"""Matrices for the tests of linear algebra, and what counts as equal."""

import mica

REAL = (mica.float32, mica.float64)
TOLERANCE = {mica.float32: 2e-4, mica.complex64: 2e-4, mica.float64: 1e-11, mica.complex128: 1e-11}


def make(*shape, dtype=mica.float64, seed=0):
    mica.manual_seed(seed)
    return mica.randn(*shape, dtype=dtype)


def definite(*shape, dtype=mica.float64):
    a = make(*shape, dtype=dtype)
    return a @ a.mH + mica.eye(shape[-1], dtype=dtype)


def close(a, b, dtype=None):
    tolerance = TOLERANCE[dtype or a.dtype]
    scale = max(1.0, float(b.abs().max()) if b.numel() else 1.0)
    mica.testing.assert_close(a, b, rtol=0, atol=tolerance * scale)
