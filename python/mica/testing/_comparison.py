"""assert_close and assert_allclose: are two values, or nested collections of them, equal up to rounding?"""

import cmath
import collections.abc
import warnings

from mica import _C

_TOLERANCES = {  # dtype: (rtol, atol)
    _C.float16: (1e-3, 1e-5),
    _C.bfloat16: (1.6e-2, 1e-5),
    _C.float32: (1.3e-6, 1e-5),
    _C.float64: (1e-7, 1e-7),
    _C.complex32: (1e-3, 1e-5),
    _C.complex64: (1.3e-6, 1e-5),
    _C.complex128: (1e-7, 1e-7),
    **dict.fromkeys((_C.quint8, _C.qint8, _C.qint32), (1.3e-6, 1e-5)),
}
_NUMBER_DTYPES = {int: _C.int64, float: _C.float64, complex: _C.complex128}


class _Mismatch(Exception):
    """What differs, and where in the nested collections."""

    def __init__(self, message, path=()):
        super().__init__(message)
        self.path = path


class _Options:
    def __init__(self, rtol, atol, equal_nan, **checks):
        if (rtol is None) != (atol is None):
            missing = "rtol" if rtol is None else "atol"
            raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.__dict__.update(checks)

    def tolerances(self, *dtypes):
        """The given tolerances, or the widest ones that one of the dtypes asks for."""
        if self.rtol is not None:
            return self.rtol, self.atol
        known = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in known), max(atol for _, atol in known)


def _allowed(tolerance, exact):
    return "" if exact else f" (up to {tolerance} allowed)"


def _scalar_message(actual, expected, rtol, atol):
    exact = rtol == 0 and atol == 0
    absolute = abs(actual - expected)
    relative = float("inf") if expected == 0 else absolute / abs(expected)
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {absolute}{_allowed(atol, exact)}\n"
        f"Relative difference: {relative}{_allowed(rtol, exact)}"
    )


def _place(flat, shape):
    index = []
    for size in reversed(shape):
        index.insert(0, flat % size)
        flat //= size
    return tuple(index)


def _tensor_message(actual, expected, matches, rtol, atol, what="Tensor-likes"):
    exact = rtol == 0 and atol == 0
    shape, count = actual.shape, actual.numel()
    mismatches = count - int(matches.sum())
    if actual.dtype.itemsize == 1 and actual.is_floating_point():
        flat = int(_C.argmax((~matches).reshape(-1).int()))
        return (
            f"{what} are not 'equal'!\n\nMismatched elements: {mismatches} / {count} "
            f"({mismatches / count:.1%})\nThe first mismatched element is at index {_place(flat, shape)}."
        )
    if not (actual.is_floating_point() or actual.is_complex()):
        actual, expected = actual.to(_C.int64), expected.to(_C.int64)
    matches, actual, expected = matches.reshape(-1), actual.reshape(-1), expected.reshape(-1)
    absolute = (actual - expected).abs()
    relative = absolute / expected.abs()
    absolute[matches] = 0
    relative[matches] = 0
    lines = [f"Mismatched elements: {mismatches} / {count} ({mismatches / count:.1%})"]
    for kind, difference, tolerance in (("absolute", absolute, atol), ("relative", relative, rtol)):
        flat = int(_C.argmax(difference))
        lines.append(
            f"Greatest {kind} difference: {difference[flat].item()} at index {_place(flat, shape)}"
            f"{_allowed(tolerance, exact)}"
        )
    return f"{what} are not {'equal' if exact else 'close'}!\n\n" + "\n".join(lines)


def _compare_attribute(name, actual, expected):
    if actual != expected:
        raise _Mismatch(f"The values for attribute '{name}' do not match: {actual} != {expected}.")


def _compare_tensors(actual, expected, options):
    _compare_attribute("shape", actual.shape, expected.shape)
    if options.check_layout:
        _compare_attribute("layout", actual.layout, expected.layout)
    if options.check_device:
        _compare_attribute("device", actual.device, expected.device)
    if options.check_dtype:
        _compare_attribute("dtype", actual.dtype, expected.dtype)
    if options.check_stride:
        _compare_attribute("stride()", actual.stride(), expected.stride())
    if actual.is_meta or expected.is_meta:
        return
    rtol, atol = options.tolerances(actual.dtype, expected.dtype)
    actual, expected = actual.detach(), expected.detach()
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype:
        common = _C.promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(common), expected.to(common)
    if actual.is_quantized and expected.is_quantized:
        _compare_attribute("qscheme()", actual.qscheme(), expected.qscheme())
        actual, expected = actual.dequantize(), expected.dequantize()
    if actual.layout != expected.layout:
        actual, expected = actual.to_dense(), expected.to_dense()
    if actual.layout == _C.strided:
        return _compare_elements("Tensor-likes", actual, expected, rtol, atol, options)
    _compare_sparse(actual, expected, rtol, atol, options)


def _compare_elements(what, actual, expected, rtol, atol, options):
    if actual.dtype.itemsize == 1 and actual.is_floating_point():
        # The 8-bit formats have no arithmetic, so elements match if their values are equal.
        matches = actual.to(_C.float32) == expected.to(_C.float32)
    else:
        matches = _C.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
    if matches.all():
        return
    if actual.dim() == 0:
        raise _Mismatch(_scalar_message(actual.item(), expected.item(), rtol, atol))
    raise _Mismatch(_tensor_message(actual, expected, matches, rtol, atol, what))


# The parts of a sparse tensor that are indices.
_INDICES = {
    _C.sparse_coo: ("_indices",),
    _C.sparse_csr: ("crow_indices", "col_indices"),
    _C.sparse_bsr: ("crow_indices", "col_indices"),
    _C.sparse_csc: ("ccol_indices", "row_indices"),
    _C.sparse_bsc: ("ccol_indices", "row_indices"),
}


def _compare_sparse(actual, expected, rtol, atol, options):
    """Indices that are equal, and values that are close."""
    kind = f"sparse {str(actual.layout).rsplit('_', 1)[-1].upper()}"
    is_coo = actual.layout == _C.sparse_coo
    if is_coo and actual.is_coalesced() != expected.is_coalesced():
        actual, expected = actual.coalesce(), expected.coalesce()
    if actual._nnz() != expected._nnz():
        raise _Mismatch(
            f"The number of specified values in {kind} tensors does not match: {actual._nnz()} != {expected._nnz()}"
        )
    kind = "S" + kind[1:]
    for part in _INDICES[actual.layout]:
        found, wanted = getattr(actual, part)(), getattr(expected, part)()
        _compare_elements(f"{kind} {part.lstrip('_')}", found, wanted, 0, 0, options)
    found, wanted = (t._values() if is_coo else t.values() for t in (actual, expected))
    _compare_elements(f"{kind} values", found, wanted, rtol, atol, options)


def _compare_numbers(actual, expected, options):
    if options.check_dtype and type(actual) is not type(expected):
        raise _Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    kinds = [next(dtype for kind, dtype in _NUMBER_DTYPES.items() if isinstance(x, kind)) for x in (actual, expected)]
    rtol, atol = options.tolerances(*kinds)
    if actual == expected or (options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
        return
    finite = cmath.isfinite(actual) and cmath.isfinite(expected)
    if not finite or abs(actual - expected) > atol + rtol * abs(expected):
        raise _Mismatch(_scalar_message(actual, expected, rtol, atol))


def _is_array(x):
    return hasattr(x, "__array_interface__") and not isinstance(x, _C.Tensor)


def _is_sequence(x):
    return isinstance(x, collections.abc.Sequence) and not isinstance(x, (str, bytes))


def _within(key, actual, expected, options):
    try:
        _compare(actual, expected, options)
    except _Mismatch as mismatch:
        mismatch.path = (key, *mismatch.path)
        raise


def _compare(actual, expected, options):
    both = (actual, expected)
    if isinstance(actual, bool) or isinstance(expected, bool):
        if all(isinstance(x, bool) for x in both):
            if actual is not expected:
                raise _Mismatch(f"Booleans mismatch: {actual} is not {expected}")
            return
    elif actual is None or expected is None:
        if actual is not expected:
            raise _Mismatch(f"None mismatch: {actual} is not {expected}")
        return
    elif all(isinstance(x, (int, float, complex)) for x in both):
        return _compare_numbers(actual, expected, options)
    elif all(isinstance(x, _C.Tensor) for x in both):
        if options.allow_subclasses or type(actual) is type(expected):
            return _compare_tensors(actual, expected, options)
    elif all(_is_array(x) for x in both):
        return _compare_tensors(_C.as_tensor(actual), _C.as_tensor(expected), options)
    elif all(isinstance(x, collections.abc.Mapping) for x in both):
        if set(actual) != set(expected):
            missing = sorted(set(expected) - set(actual), key=str)
            additional = sorted(set(actual) - set(expected), key=str)
            raise _Mismatch(
                f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {additional}"
            )
        for key in expected:
            _within(key, actual[key], expected[key], options)
        return
    elif all(_is_sequence(x) for x in both):
        if len(actual) != len(expected):
            raise _Mismatch(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            _within(i, a, e, options)
        return
    raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def assert_close(
    actual,
    expected,
    *,
    allow_subclasses=True,
    rtol=None,
    atol=None,
    equal_nan=False,
    check_device=True,
    check_dtype=True,
    check_layout=True,
    check_stride=False,
    msg=None,
):
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected|, everywhere.

    Compares tensors, arrays, numbers, and sequences and mappings of them. Tolerances that are not given follow from the
    dtype; those of integers and bools are zero. `msg` replaces the message, or is called with it.
    """
    __tracebackhide__ = True
    options = _Options(
        rtol,
        atol,
        equal_nan,
        allow_subclasses=allow_subclasses,
        check_device=check_device,
        check_dtype=check_dtype,
        check_layout=check_layout,
        check_stride=check_stride,
    )
    try:
        _compare(actual, expected, options)
        return
    except _Mismatch as mismatch:
        message = str(mismatch)
        if mismatch.path:
            path = "".join(f"[{key!r}]" for key in mismatch.path)
            message += f"\n\nThe failure occurred for item {path}"
    if msg is not None:
        message = msg(message) if callable(msg) else msg
    raise AssertionError(message)


# (rtol, atol) of assert_allclose; numbers of other dtypes must be equal.
_OLD_TOLERANCES = {_C.float16: (1e-3, 1e-3), _C.float32: (1e-4, 1e-5), _C.float64: (1e-5, 1e-8)}


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """The older form of `assert_close`: dtypes may differ, NaNs are equal, and tolerances follow from both dtypes.

    Example::

        >>> torch.testing.assert_allclose(torch.ones(2), torch.ones(2, dtype=torch.float64))
    """
    __tracebackhide__ = True
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. "
        "Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual, expected = (each if isinstance(each, _C.Tensor) else _C.tensor(each) for each in (actual, expected))
    if rtol is None and atol is None:
        pairs = [_OLD_TOLERANCES.get(each.dtype, (0.0, 0.0)) for each in (actual, expected)]
        rtol, atol = map(max, zip(*pairs, strict=True))
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )
