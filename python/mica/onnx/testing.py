"""A check for tests of exported models."""

import mica
from mica.onnx.verification import both_results

__all__ = ["assert_onnx_program"]


def assert_onnx_program(program, *, rtol=None, atol=None, args=None, kwargs=None, strategy=None, backend="onnxruntime"):
    """Raise an AssertionError where the model's results differ from those of the module that it was exported from.

    backend is "onnxruntime" or "reference", the evaluator of the package onnx. strategy names a way of torch's to capture
    a module, of which there is one here, so that it must be None.
    """
    if backend not in ("onnxruntime", "reference"):
        raise ValueError(f"Unsupported backend '{backend}'. Supported backends are 'onnxruntime' and 'reference'.")
    if strategy is not None:
        raise NotImplementedError(f"assert_onnx_program: strategy={strategy!r}; modules are captured in one way")
    expected, found = both_results(program, args, kwargs, backend)
    expected = tuple(mica.view_as_real(each) if each.is_complex() else each for each in expected)
    mica.testing.assert_close(tuple(found), expected, rtol=rtol, atol=atol, equal_nan=True, check_device=False)
