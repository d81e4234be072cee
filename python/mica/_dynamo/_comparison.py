"""Compares the results of a compiled function with those of the function itself: torch._dynamo.utils.same."""

import collections
import logging

import mica

__all__ = ["same"]

_log = logging.getLogger("torch._dynamo.utils")
_PLAIN = (str, int, bool, type(None), mica.device)


def same(ref, res, fp64_ref=None, cos_similarity=False, tol=1e-4, equal_nan=False, exact_dtype=True,
         relax_numpy_equality=False, ignore_non_fp=False, log_error=_log.error):  # fmt: skip
    """Whether two nests of values are alike.

    Args:
        ref, res: what is expected, and what came out
        fp64_ref: what was computed in float64; where `res` is about as near to it as `ref` is, that is alike
        cos_similarity: compare directions only
        tol: the absolute and the relative tolerance
        exact_dtype: whether another dtype is a difference
        relax_numpy_equality: let a number of Python's equal one of NumPy's
        ignore_non_fp: compare floating-point numbers only
    """
    fp64_ref = ref if fp64_ref is None else fp64_ref
    options = {"cos_similarity": cos_similarity, "tol": tol, "equal_nan": equal_nan, "exact_dtype": exact_dtype,
               "relax_numpy_equality": relax_numpy_equality, "ignore_non_fp": ignore_non_fp, "log_error": log_error}  # fmt: skip
    if isinstance(ref, (list, tuple, collections.deque, mica.nn.ParameterList)):
        if not isinstance(res, (list, tuple, collections.deque)):
            raise AssertionError(f"type mismatch {type(ref)} {type(res)}")
        if len(ref) != len(res):
            log_error("Length mismatch")
            return False
        return all(same(*three, **options) for three in zip(ref, res, fp64_ref, strict=False))
    if isinstance(ref, dict):
        if not isinstance(res, dict) or ref.keys() != res.keys():
            raise AssertionError(f"keys mismatch {set(ref)} == {set(res) if isinstance(res, dict) else type(res)}")
        return all(same(ref[key], res[key], fp64_ref[key], **options) for key in ref)
    if isinstance(ref, set):
        if not isinstance(res, set) or ref != res:
            raise AssertionError(f"elements mismatch {ref} == {res}")
        return True
    if isinstance(ref, (mica.Tensor, float)):
        return _same_tensors(*map(_as_tensor, (ref, res, fp64_ref)), **options)
    if isinstance(ref, _PLAIN):
        return ignore_non_fp or _said(bool(ref == res), log_error, "Accuracy failed: %s != %s", ref, res)
    return _same_numpy(ref, res, fp64_ref, options)


def _said(answer, log_error, *words):
    if not answer:
        log_error(*words)
    return answer


def _as_tensor(value):
    value = value if isinstance(value, mica.Tensor) else mica.tensor(value)
    return value.to_dense() if value.is_sparse else value


def _same_tensors(ref, res, fp64_ref, cos_similarity, tol, equal_nan, exact_dtype, ignore_non_fp, log_error, **others):
    if exact_dtype and ref.dtype != res.dtype:
        return _said(False, log_error, "dtype mismatch %s, %s", ref.dtype, res.dtype)
    if ref.dtype == mica.bool and res.dtype == mica.bool:
        if ignore_non_fp:
            return True
        ref, res = ref.to(mica.uint8), res.to(mica.uint8)
    if cos_similarity:
        ref, res = ref.flatten().to(mica.float32), res.flatten().to(mica.float32)
        if mica.allclose(ref, res, tol, tol, True):
            return True
        return bool(mica.nn.functional.cosine_similarity(ref, res, dim=0, eps=1e-6) >= 0.99)
    ref = ref if exact_dtype else ref.to(res.dtype)
    if mica.allclose(ref, res, tol, tol, equal_nan):
        return True
    if fp64_ref.dtype == mica.float64:
        factor = 3.0 if res.dtype in (mica.float16, mica.bfloat16) or fp64_ref.numel() < 1000 or tol >= 0.02 else 2.0
        near = _distance(fp64_ref, res) <= factor * _distance(fp64_ref, ref) + tol / 10
        return _said(near, log_error, "Accuracy failed: further from float64's values than %s times the other", factor)
    return ignore_non_fp or _said(False, log_error, "Accuracy failed: allclose not within tol=%s", tol)


def _distance(exact, other):
    return mica.sqrt(mica.mean(mica.square(exact - other.to(mica.float64)))).item()


def _same_numpy(ref, res, fp64_ref, options):
    kind = type(ref).__module__.partition(".")[0]
    if kind != "numpy":
        raise RuntimeError(f"unsupported type: {type(ref).__name__}")
    import numpy

    if isinstance(ref, numpy.ndarray):
        exact = mica.as_tensor(fp64_ref) if isinstance(fp64_ref, numpy.ndarray) else fp64_ref
        return type(ref) is type(res) and same(mica.as_tensor(ref), mica.as_tensor(res), exact, **options)
    if options["relax_numpy_equality"] and not isinstance(res, numpy.generic):
        ref = ref.item()
    alike = type(ref) is type(res) and bool(ref == res)
    return _said(alike, options["log_error"], "Accuracy failed (numpy): %s != %s", ref, res)
