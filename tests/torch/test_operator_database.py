"""torch's own database of operators: every sample on torch and on Mica, values, gradients and what is refused."""

import contextlib
import re
import warnings

import mica
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's database of operators needs it")

from operator_database import (  # noqa: E402
    Absent,
    assert_same,
    call_both,
    function_in_mica,
    gradients,
    in_mica,
    samples_of,
    tensors_in,
)
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

pytestmark = pytest.mark.torch
torch.set_num_threads(1)  # samples are small
mica.set_num_threads(1)

# Names that are not compared here, with the reason.
ELSEWHERE = {
    r"nn\.functional\.": "layers have live tests of their own",
    r"sparse\.|to_sparse": "only strided tensors",
    r"masked\.": "not part of the engine",
    r"jiterator|_(?!_)|torch\.ops|hash_tensor|slice$|native_dropout_backward|max_pool2d_with_indices_backward": (
        "torch's own machinery"
    ),
    r"grid_sampler": "layers have live tests of their own",
}
ABSENT_OR_ELSEWHERE = re.compile("|".join(f"(?:{p})" for p in ELSEWHERE))


def is_compared(op):
    if ABSENT_OR_ELSEWHERE.match(f"{op.name} {op.variant_test_name}".rstrip()):
        return False
    # Of linalg, what is there is compared; tests/python/test_torch_names.py says what is not.
    return not op.name.startswith("linalg.") or hasattr(mica.linalg, op.name.removeprefix("linalg."))


OPERATORS = [op for op in op_db if is_compared(op)]

NO_VALUES = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# Among equal elements torch names any index; Mica the first. Only the values are compared.
ANY_INDEX = {"topk": lambda r: r[0], "sort": lambda r: r[0], "argsort": lambda r: None}
# (name, dtype): why the values may differ.
VALUES_DIFFER = {
    ("polygamma", "float32"): "near the poles Mica, which computes in double, is the closer one",
    ("special.polygamma", "float32"): "as polygamma",
    ("addbmm", "bfloat16"): "torch rounds after each matrix of the batch, Mica once",
    ("addr", "bfloat16"): "torch rounds the product, Mica too, but the sum differs where it cancels",
    ("div", "bfloat16"): "torch truncates the quotient after rounding it to 16 bits",
    ("histogramdd", "float32"): "some samples have edges that do not ascend",
}
GRADIENTS_DIFFER = {
    "as_strided_scatter": "torch passes on what `src` replaced (docs/differences.md)",
    "native_group_norm": "statistics are not differentiable",
}
# (name, words of torch's message): inputs that torch refuses, and why Mica takes them or says something else.
REFUSED_DIFFERENTLY = [
    ("", "some elements of the input tensor and the written-to tensor refer", "computed apart (docs/differences.md)"),
    ("flip", "only tensors with up to 64 dims", "a view and a copy (docs/differences.md)"),
    ("index_select", "more than one element of the written-to tensor", "out is resized first"),
    ("rsub", "invalid combination of arguments", "numbers are taken"),
    ("gradient", "each tensor to be on the same device", "the product that follows says so"),
    ("complex", "for argument 'out'", "results are cast into out"),
    ("aminmax", "Expected out tensor to have dtype", "other words"),
    ("as_strided_scatter", "are out of bounds for storage", "elements instead of bytes"),
    ("narrow_copy", "", "the words of narrow"),
    ("multinomial", "multinomial expects Long tensor out", "results are cast into out"),
    ("multinomial", "invalid multinomial distribution", "one message for all distributions that are none"),
]
DTYPES = ("float32", "bfloat16", "complex64", "int64", "uint8", "bool")


def name_of(op):
    return f"{op.name}-{op.variant_test_name}" if op.variant_test_name else op.name


def quietly(test):
    return pytest.mark.filterwarnings("ignore")(pytest.mark.parametrize("op", OPERATORS, ids=name_of)(test))


@contextlib.contextmanager
def described(op, dtype, sample):
    """Says, of a failure, for which sample it was: printing every sample would take longer than running it."""
    try:
        yield
    except Exception as e:
        e.add_note(f"{name_of(op)} of {dtype}: {str(sample)[:300]}")
        raise


@quietly
def test_values(op):
    for dtype in DTYPES:
        if getattr(torch, dtype) not in op.supported_dtypes("cpu") or (op.name, dtype) in VALUES_DIFFER:
            continue
        for sample in samples_of(op, getattr(torch, dtype)):
            with described(op, dtype, sample):
                theirs, ours, _ = call_both(op, sample)
            if isinstance(theirs, Exception):
                continue
            if op.name in NO_VALUES:
                assert ours.shape == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype)
                assert theirs.numel() == 0 or ours.stride() == theirs.stride()
                continue
            pick = ANY_INDEX.get(op.name, lambda r: r)
            with described(op, dtype, sample):
                assert_same(pick(ours), pick(theirs))


@quietly
def test_gradients(op):
    if not op.supports_autograd or op.name in GRADIENTS_DIFFER:
        pytest.skip(GRADIENTS_DIFFER.get(op.name, "not differentiable"))
    for dtype in (torch.float64, torch.complex128):
        if dtype not in op.supported_backward_dtypes("cpu"):
            continue
        for sample in samples_of(op, dtype, requires_grad=True, at_most=12):
            with described(op, dtype, sample):
                theirs, ours, inputs = call_both(op, sample)
            if isinstance(theirs, Exception):
                continue
            if sample.output_process_fn_grad is not None:
                theirs, ours = (sample.output_process_fn_grad(r) for r in (theirs, ours))
            differentiable = [t for t in tensors_in(theirs) if t.requires_grad]
            ours = [t for t in tensors_in(ours) if t.requires_grad]
            with described(op, dtype, sample):
                assert len(ours) == len(differentiable)
            given = [t for t in tensors_in((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
            if not given or not differentiable:
                continue
            weights = [torch.randn(t.shape, dtype=torch.float64).to(t.dtype) for t in differentiable]
            try:
                expected = gradients(torch, differentiable, weights, given)
            except RuntimeError:
                continue  # a derivative that torch does not have
            own = [t for t in tensors_in(inputs) if t.requires_grad]
            with described(op, dtype, sample):
                assert_same(gradients(mica, ours, in_mica(weights), own), expected)


@quietly
def test_wrong_inputs(op):
    if op.error_inputs_func is None:
        pytest.skip("none are known")
    ours = function_in_mica(op.op, op.name)
    for wrong in op.error_inputs("cpu"):
        sample = wrong.sample_input
        try:
            inputs = in_mica((sample.input, sample.args, sample.kwargs))
        except Absent:
            continue
        try:
            op.op(sample.input, *sample.args, **sample.kwargs)
            continue  # torch takes it after all
        except Exception as e:
            kind, message = type(e), str(e)
        if any(op.name.startswith(name) and words in message for name, words, _ in REFUSED_DIFFERENTLY):
            continue
        with pytest.raises(kind, match=wrong.error_regex), warnings.catch_warnings():
            ours(inputs[0], *inputs[1], **inputs[2])


# Names whose out= torch's database promises and its own function refuses, or that Mica decides otherwise.
NO_OUT = {"float_power": "torch's own out= refuses every dtype but double"}


@quietly
def test_out(op):
    if not op.supports_out or op.name in NO_OUT:
        pytest.skip(NO_OUT.get(op.name, "torch has no out="))
    function = function_in_mica(op.op, op.name)
    compared = 0
    for sample in samples_of(
        op, torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64, at_most=6
    ):
        theirs, ours, inputs = call_both(op, sample)
        if isinstance(theirs, Exception) or "out" in sample.kwargs:
            continue
        given = tensors_in(theirs)
        outs = [torch.empty_like(t) for t in given]
        try:
            op.op(
                sample.input, *sample.args, **sample.kwargs, out=outs[0] if isinstance(theirs, torch.Tensor) else outs
            )
        except Exception:
            continue  # a form that torch itself has no out= for
        for start in ("empty", "right"):
            own = [mica.empty(0 if start == "empty" else t.shape, dtype=t.dtype) for t in tensors_in(ours)]
            with described(op, "out=", sample):
                function(
                    inputs[0], *inputs[1], **inputs[2], out=own[0] if isinstance(theirs, torch.Tensor) else tuple(own)
                )
                if op.name not in NO_VALUES | set(ANY_INDEX):
                    assert_same(own, given)
        compared += 1
    if not compared:
        pytest.skip("no sample that torch takes with out=")
