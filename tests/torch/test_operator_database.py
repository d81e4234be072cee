"""torch's own database of operators: every sample on torch and on Mica, values, gradients and what is refused."""

import contextlib
import re
import types
import warnings

import mica
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's database of operators needs it")

from operator_database import (  # noqa: E402
    DEVICE,
    Absent,
    assert_same,
    call_both,
    function_in_mica,
    gradients,
    in_mica,
    replaced,
    samples_of,
    tensors_in,
    with_mica,
)
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

pytestmark = pytest.mark.torch
torch.set_num_threads(1)  # samples are small
mica.set_num_threads(1)

# Names that are not compared, with the reason.
NO_CPU = {
    r"jiterator|torch\.ops\.aten\._(flash|efficient)_attention_forward|torch\._scaled_mm_v2": "torch has it for CUDA alone",
}
NOT_COMPARED = re.compile("|".join(f"(?:{p})" for p in NO_CPU))
OPERATORS = [op for op in op_db if not NOT_COMPARED.match(op.name)]

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
    ("_native_batch_norm_legit", "bfloat16"): "statistics of 16-bit inputs are float32",
    ("_batch_norm_with_update", "bfloat16"): "statistics of 16-bit inputs are float32",
    ("_unsafe_masked_index_put_accumulate", "bfloat16"): "the order of sums that round",
    ("matrix_exp", "float32"): "elements far below the greatest; both are right to 5e-7 of that",
    ("matrix_exp", "complex64"): "as float32",
    ("matrix_exp", "bfloat16"): "torch's is NaN where the greatest element is above 9e4; Mica is right to 4e-3",
    ("svd_lowrank", "complex64"): "singular vectors have a phase of their own",
    ("pca_lowrank", "complex64"): "as svd_lowrank",
    (
        "nn.functional.conv_transpose3d",
        "float32",
    ): "one element of 2744 cancels; both are right to 2e-7 of the greatest",
    # Compared with float64, Mica errs by 3e-3 in these, and torch by 4e-3 and more, because it rounds between its
    # steps.
    ("nn.functional.conv_transpose1d", "bfloat16"): "torch rounds between steps",
    ("nn.functional.conv_transpose2d", "bfloat16"): "torch rounds between steps",
    ("nn.functional.conv_transpose3d", "bfloat16"): "torch rounds between steps",
    ("nn.functional.instance_norm", "bfloat16"): "torch rounds between steps",
    ("nn.functional.interpolate", "bfloat16"): "torch rounds between steps",
    ("nn.functional.grid_sample", "bfloat16"): "torch rounds positions to 8 bits",
    ("grid_sampler_2d", "bfloat16"): "torch rounds positions to 8 bits",
    ("grid_sampler_3d", "bfloat16"): "torch rounds positions to 8 bits",
    ("nn.functional.bilinear", "bfloat16"): "both round between steps, of which there are several orders",
    ("nn.functional.binary_cross_entropy_with_logits", "bfloat16"): "both round between steps; the errors are equal",
    ("histogramdd", "float32"): "some samples have edges that do not ascend",
}
GRADIENTS_DIFFER = {
    "as_strided_scatter": "torch passes on what `src` replaced (docs/differences.md)",
    "native_group_norm": "statistics are not differentiable",
    "istft": "torch gives some windows no gradient; finite differences give Mica's (test_gradcheck holds)",
    "linalg.eigh": "eigenvectors have a sign of their own; test_gradcheck holds",
    "nn.functional.hardsigmoid": "torch's sixth is a float32",
}
GRADIENTS_OF_DTYPE_DIFFER = {
    ("sparse.sampled_addmm", torch.complex128): "torch forgets to conjugate; the dense product's gradients are Mica's",
}
# (name, words of torch's message): inputs that torch refuses, and why Mica takes them or says something else.
REFUSED_DIFFERENTLY = [
    ("", "some elements of the input tensor and the written-to tensor refer", "computed apart (docs/differences.md)"),
    ("flip", "only tensors with up to 64 dims", "a view and a copy (docs/differences.md)"),
    ("index_select", "more than one element of the written-to tensor", "out is resized first"),
    ("rsub", "invalid combination of arguments", "numbers are taken"),
    ("__rdiv__", "'int' object has no attribute", "numbers are taken"),
    ("gradient", "each tensor to be on the same device", "the product that follows says so"),
    ("complex", "for argument 'out'", "results are cast into out"),
    ("aminmax", "Expected out tensor to have dtype", "other words"),
    ("as_strided_scatter", "are out of bounds for storage", "elements instead of bytes"),
    ("narrow_copy", "", "the words of narrow"),
    ("multinomial", "multinomial expects Long tensor out", "results are cast into out"),
    ("multinomial", "invalid multinomial distribution", "one message for all distributions that are none"),
]
# Eigenvectors and singular vectors are known up to a factor of absolute value one, which torch's libraries choose
# differently on the two architectures. tests/ops check the vectors; their lengths are compared here.
ANY_INDEX |= {name: lambda r: (r[0], r[1].abs()) for name in ("linalg.eig", "linalg.eigh")}
# Vectors beyond the number of singular values may be any that are orthogonal to the others.
ANY_INDEX["linalg.svd"] = lambda r: (r[0][..., : r[1].shape[-1]].abs(), r[1], r[2][..., : r[1].shape[-1], :].abs())
ANY_INDEX |= {
    name: lambda r: (r[0][..., : r[1].shape[-1]].abs(), r[1], r[2][..., : r[1].shape[-1]].abs())
    for name in ("svd", "svd_lowrank", "pca_lowrank")
}
# On another device than the CPU there are other random numbers, in torch too, and other choices among equal elements.
RANDOM_BY_DEVICE = re.compile(
    r"bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal|uniform|rand(n|int)?(_like)?$|svd_lowrank"
    r"|pca_lowrank"
    r"|nn\.functional\.(.*dropout.*|rrelu|fractional_max_pool.*|multi_head_attention_forward|scaled_dot_product_attention)"
)
if DEVICE != "cpu":
    OPERATORS = [op for op in OPERATORS if not RANDOM_BY_DEVICE.match(op.name)]
    # Eigenvectors are known up to their sign.
    ANY_INDEX |= {name: lambda r: r[0] for name in ("kthvalue", "mode", "linalg.eigh")}
    # torch's CPU rounds to bytes between the passes over rows and columns.
    RESAMPLING = ("nn.functional.interpolate", "nn.functional.upsample_bilinear", "_upsample_bilinear2d_aa")
    VALUES_DIFFER |= {(name, "uint8"): "rounded between passes" for name in RESAMPLING}
    CONVOLUTIONS = (f"nn.functional.conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))
    VALUES_DIFFER |= {(name, "int64"): "torch too has no convolution of integers on a GPU" for name in CONVOLUTIONS}
    mica.backends.cudnn.allow_tf32 = False
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


def at_elements_of(tensor, gradient):
    """The gradient at the elements that a sparse tensor has, zero elsewhere."""
    if tensor.layout == torch.strided:
        return gradient
    parts = tensor.detach().to_sparse_coo().coalesce()
    return gradient * torch.sparse_coo_tensor(parts.indices(), torch.ones_like(parts.values()), parts.shape).to_dense()


@quietly
def test_gradients(op):
    if not op.supports_autograd or op.name in GRADIENTS_DIFFER:
        pytest.skip(GRADIENTS_DIFFER.get(op.name, "not differentiable"))
    for dtype in (torch.float64, torch.complex128):
        if dtype not in op.supported_backward_dtypes("cpu") or (op.name, dtype) in GRADIENTS_OF_DTYPE_DIFFER:
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
            given = [t for t in tensors_in((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
            if not given or not differentiable:
                continue
            weights = [torch.randn(t.shape, dtype=torch.float64).to(t.dtype) for t in differentiable]
            try:
                expected = gradients(torch, differentiable, weights, given)
            except RuntimeError:
                continue  # a derivative that torch does not have
            own = [t for t in tensors_in(inputs) if t.requires_grad]
            if not ours and not any(g.to_dense().any() for g in expected):
                continue  # what does not depend on its input needs no gradient
            with described(op, dtype, sample):
                assert len(ours) == len(differentiable)
            with described(op, dtype, sample):
                found = gradients(mica, ours, in_mica(weights), own)
                if "sparse" in op.name:  # the gradient of a sparse operand is sparse, where torch's may not be
                    found = [g.to_dense() for g in found]
                    expected = [at_elements_of(t, g.to_dense()) for t, g in zip(given, expected, strict=True)]
                assert_same(found, expected)


# What finite differences cannot check, with the reason.
NO_GRADCHECK = {
    "to_sparse": "sparse results: tests/layouts",
    "svd_lowrank": "random",
    "pca_lowrank": "random",
    "normal": "random",
    "nn.functional.max_unpool1d": "samples have indices that repeat",
    "nn.functional.max_unpool2d": "samples have indices that repeat",
    "nn.functional.max_unpool3d": "samples have indices that repeat",
    "linalg.norm-subgradients_at_zero": "zero is where norms have no derivative",
}
NO_GRADGRAD = {"masked.logaddexp": "what is masked on both sides is -inf"}


@quietly
def test_gradcheck(op):
    """First and second derivatives against finite differences, each projected on one random direction."""
    reason = NO_GRADCHECK.get(op.name) or NO_GRADCHECK.get(name_of(op))
    if not op.supports_autograd or reason:
        pytest.skip(reason or "not differentiable")
    wrapper = op.gradcheck_wrapper
    if isinstance(wrapper, types.FunctionType) and wrapper.__module__.startswith("torch.testing"):
        wrapper = with_mica(wrapper)
    function, checked = function_in_mica(op.op, op.name), 0
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
        theirs, result, inputs = call_both(op, sample)
        flat = tensors_in(inputs)
        differentiable = [] if isinstance(theirs, Exception) else [t for t in tensors_in(result) if t.requires_grad]
        # Differences need 64 bits and a value.
        if not differentiable or any(t.dtype not in (mica.float64, mica.complex128) for t in differentiable):
            continue
        if any(t.isnan().any() for t in differentiable if t.layout == mica.strided):
            continue
        if sum(t.numel() for t in flat) > 400 or not all(t.layout == mica.strided for t in flat + tensors_in(result)):
            continue
        leaves = [t for t in flat if t.requires_grad and t.dtype in (mica.float64, mica.complex128)]
        places = {id(t): i for i, t in enumerate(leaves)}

        def of_leaves(*given, inputs=inputs, places=places, process=sample.output_process_fn_grad):
            first, args, kwargs = replaced(inputs, places, given)
            mica.manual_seed(0)
            made = process(wrapper(function, first, *args, **kwargs))
            return tuple(t for t in tensors_in(made) if t.requires_grad)

        with described(op, "float64", sample):
            assert mica.autograd.gradcheck(of_leaves, leaves, fast_mode=True, nondet_tol=1e-12)
            if op.supports_gradgrad and op.name not in NO_GRADGRAD:
                assert mica.autograd.gradgradcheck(of_leaves, leaves, fast_mode=True, nondet_tol=1e-12)
        checked += 1
        if checked == 3:
            break
    if not checked:
        pytest.skip("no sample that is small and strided")


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


def empty_out(result, start):
    if result.layout != mica.strided:
        return mica.zeros_like(result)  # a sparse tensor has no shape without its layout
    return mica.empty(0 if start == "empty" else result.shape, dtype=result.dtype, device=result.device)


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
            own = [empty_out(t, start) for t in tensors_in(ours)]
            with described(op, "out=", sample):
                function(
                    inputs[0], *inputs[1], **inputs[2], out=own[0] if isinstance(theirs, torch.Tensor) else tuple(own)
                )
                if op.name not in NO_VALUES | set(ANY_INDEX):  # test_values compares the same with torch's
                    mica.testing.assert_close(own, tensors_in(ours), rtol=0, atol=0, equal_nan=True)
        compared += 1
    if not compared:
        pytest.skip("no sample that torch takes with out=")
