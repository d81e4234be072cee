"""Every sample in every mode: recorded torch results, gradients, out=, in place, strided inputs, meta, dtypes."""

import json
import math
from pathlib import Path

import mica
import pytest
from sample_runner import Evaluator, load_samples, outcome, tensors_of

SAMPLES = load_samples()
RECORDED = json.loads((Path(__file__).parents[1] / "recorded" / "samples.json").read_text())
# By dtype, the samples that are refused in it, here and in torch (tests/recorded/record_refusals.py).
REFUSED = json.loads((Path(__file__).parents[1] / "recorded" / "refused_dtypes.json").read_text())


def ids(sample):
    return sample.id


def flat(t):
    return [] if t.numel() == 0 else t.detach().reshape(-1).tolist()


def assert_same(a, b, rtol=1e-12, atol=1e-14):
    assert tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype
    mica.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)


def close(x, y):
    if isinstance(x, bool) or isinstance(y, bool):
        return x == y
    if isinstance(y, list):  # complex, recorded as [real, imaginary]
        return close(x.real, y[0]) and close(x.imag, y[1])
    if isinstance(y, str):  # nan, inf
        y = float(y)
    return (math.isnan(x) and math.isnan(y)) or x == y or math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-11)


@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_equals_the_recorded_result(sample):
    results = tensors_of(Evaluator(mica).run(sample.text))
    assert sample.text in RECORDED, "run tests/recorded/record_samples.py with torch"
    expected = RECORDED[sample.text]
    assert len(results) == len(expected)
    for result, (shape, dtype, values) in zip(results, expected, strict=True):
        assert list(result.shape) == shape and str(result.dtype) == dtype
        got = flat(result)
        assert len(got) == len(values) and all(map(close, got, values)), (got, values)


# These read the storage, whatever the strides of the tensor say.
STORAGE = {"as_strided", "as_strided_scatter"}


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.op not in STORAGE], ids=ids)
def test_strided_inputs_give_the_same(sample):
    plain = tensors_of(Evaluator(mica).run(sample.text))
    strided = tensors_of(Evaluator(mica, mode="noncontiguous").run(sample.text))
    for a, b in zip(plain, strided, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_any_byte_but_zero_is_true(sample):
    plain, odd = (outcome(Evaluator(mica, mode, dtype="bool"), sample.text) for mode in ("plain", "bytes"))
    assert type(plain) is type(odd)
    if isinstance(plain, str):
        assert plain == odd
        return
    for a, b in zip(plain, odd, strict=True):
        assert_same(a, b)


# Operations whose result's shape depends on the data, or that read a number out of a tensor.
DATA_DEPENDENT = {
    "nonzero", "masked_select", "argwhere", "unique", "repeat_interleave", "bincount", "index", "where", "combinations",
    "isin", "histogram", "equal", "allclose", "one_hot", "embedding", "searchsorted",
}  # fmt: skip


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.op not in DATA_DEPENDENT], ids=ids)
def test_meta_has_the_same_form(sample):
    plain = tensors_of(Evaluator(mica).run(sample.text))
    meta = tensors_of(Evaluator(mica, mode="meta").run(sample.text))
    for a, b in zip(plain, meta, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and b.is_meta, sample.text


def differentiable_outputs(text, evaluator):
    return [t for t in tensors_of(evaluator.run(text)) if t.is_floating_point() or t.is_complex()]


# The padding row of an embedding gets no gradient, and frequent rows a scaled one: this is on purpose not the
# derivative.
NOT_A_DERIVATIVE = {"embedding"}


@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if s.differentiable and "detach" not in s.text and s.op not in NOT_A_DERIVATIVE],
    ids=ids,
)
def test_gradient(sample):
    reference = Evaluator(mica, requires_grad=True)
    outputs = differentiable_outputs(sample.text, reference)
    if not outputs or not any(t.requires_grad for t in outputs):
        assert not reference.leaves or not outputs, f"{sample.text} does not pass on requires_grad"
        return
    leaves = reference.leaves

    def function(*inputs):
        evaluator = Evaluator(mica)
        given = iter(inputs)
        evaluator.T = evaluator.P = evaluator.C = lambda *shape: next(given)
        return tuple(differentiable_outputs(sample.text, evaluator))

    inputs = tuple(t.detach().clone().requires_grad_() for t in leaves)
    assert mica.autograd.gradcheck(function, inputs, eps=1e-6, atol=1e-5)


def is_call(sample):
    return sample.text.endswith(")")


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if "out" in s.forms and is_call(s) and not s.text.startswith("nn.")], ids=ids
)
def test_out(sample):
    function = Evaluator(mica).function(sample.text, sample.op)
    args, keywords = Evaluator(mica).arguments(sample.text)
    expected = tensors_of(function(*args, **keywords))
    for start in ("empty", "right"):
        outs = tuple(mica.empty(0, dtype=e.dtype) if start == "empty" else mica.full_like(e, 1) for e in expected)
        returned = tensors_of(function(*args, **keywords, out=outs[0] if len(outs) == 1 else outs))
        for out, back, e in zip(outs, returned, expected, strict=True):
            assert back is out
            assert_same(out, e)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if "inplace" in s.forms and is_call(s)], ids=ids)
def test_in_place(sample):
    args, keywords = Evaluator(mica).arguments(sample.text)
    if not isinstance(args[0], mica.Tensor):
        pytest.skip("a number on the left has no in-place form")
    expected = getattr(mica.Tensor, sample.op)(*args, **keywords)
    real_of_complex = args[0].is_complex() and not expected.is_complex()  # torch refuses abs_ of complex numbers
    if expected.shape != args[0].shape or not mica.can_cast(expected.dtype, args[0].dtype) or real_of_complex:
        target = args[0].clone()
        with pytest.raises(RuntimeError):
            getattr(target, sample.op + "_")(*args[1:], **keywords)
        assert_same(target, args[0])  # a failed call changes nothing
        return
    target = args[0].clone()
    pointer = target.data_ptr()
    assert getattr(target, sample.op + "_")(*args[1:], **keywords) is target and target.data_ptr() == pointer
    assert_same(target, expected.to(target.dtype))


# The distance of one to the next number of the format.
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}


DTYPE_IS_REFUSED = "dtype|not implemented for|scalar type|support|Expected"


# Samples in which every input affects several results: how many rounded numbers go into one of them.
TERMS = {
    "interpolate": 16,  # the taps of a bicubic, with weights from coordinates that are rounded too
    "grid_sample": 16,
    "rms_norm": 8,  # a row of squares, its root, the quotient, the weight
    "group_norm": 24,  # groups of two numbers, the closest a twelfth of their size apart
    "rnn_tanh": 2 * 5 * 7,  # two layers over five steps, each a sum of seven products
    **{f"_polynomial_{kind}": 20 for kind in "tuvwp"},  # nine steps of two roundings each, and that of the argument
    "pinv": 12,  # three rows of four products
    "pinverse": 12,
    "bessel_j0": 16,  # a series of Chebyshev's polynomials with as many terms
    "gradient": 6,  # three products of a quotient of differences
    # The rows of the sample's matrix times its condition, by which errors of the input grow.
    "tensorinv": 6 * 40,
    "tensorsolve": 6 * 40,
    "lstsq": 3 * 7,
    "eig": 3 * 5,
}


def terms_behind(sample, result, evaluator):
    """How many numbers at most went into one number of the result: each may have been rounded on its way."""
    named = [terms for name, terms in TERMS.items() if f"{name}(" in sample.text]
    return max([*named, sum(t.numel() for t in evaluator.inputs) / max(result.numel(), 1)])


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_lower_precision(sample, dtype):
    reference = Evaluator(mica, mode="rounded", dtype=dtype)
    exact = tensors_of(reference.run(sample.text))
    if sample.text in REFUSED[dtype]["refused"]:
        with pytest.raises(RuntimeError, match=DTYPE_IS_REFUSED):  # NotImplementedError among them
            Evaluator(mica, dtype=dtype).run(sample.text)
        return
    rounded = tensors_of(Evaluator(mica, dtype=dtype).run(sample.text))
    for a, b in zip(exact, rounded, strict=True):
        assert a.shape == b.shape
        if not a.is_floating_point() or not b.is_floating_point():
            assert a.dtype == b.dtype or a.is_complex(), (a.dtype, b.dtype)
            continue
        scale = max([1.0] + [abs(v) for v in flat(a) if math.isfinite(v)])
        bound = EPSILON[dtype] * (1 + terms_behind(sample, a, reference)) * scale
        for x, y in zip(flat(a), flat(b.double()), strict=True):
            assert (math.isnan(x) and math.isnan(y)) or x == y or abs(x - y) <= bound, (sample.text, x, y, bound)
