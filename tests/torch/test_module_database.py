"""torch's own databases of layers: every function and every class of nn on torch and on Mica."""

import copy
import io
import pickle

import mica
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's databases need it")

from module_database import (  # noqa: E402
    assert_same_strides,
    carried,
    channels_last,
    floating,
    leaves,
    plain,
    random_like,
    strided,
    thinned,
)
from operator_database import assert_same, function_in_mica, in_mica, samples_of, tensors_in  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
torch.set_num_threads(1)  # samples are small
mica.set_num_threads(1)

FUNCTIONS = [op for op in op_db if op.name.startswith("nn.functional.")]
DTYPES = ("float32", "bfloat16", "complex64", "int64")
# (name, dtype) whose values differ, and why. In 16 bits Mica is never further from the exact result than torch.
VALUES_DIFFER = {
    ("binary_cross_entropy_with_logits", "bfloat16"): "torch rounds after each step, Mica once",
    ("bilinear", "bfloat16"): "torch rounds after each step, Mica once",
    ("conv_transpose1d", "bfloat16"): "torch rounds the columns that it adds, Mica sums",
    ("conv_transpose2d", "bfloat16"): "torch rounds the columns that it adds, Mica sums",
    ("conv_transpose3d", "float32"): "hundreds of products that cancel, summed in another order",
    ("conv_transpose3d", "bfloat16"): "torch rounds the columns that it adds, Mica sums",
    ("grid_sample", "bfloat16"): "torch rounds weights, Mica computes in float32",
    ("instance_norm", "bfloat16"): "torch rounds running statistics before it uses them",
    ("interpolate", "bfloat16"): "torch rounds weights, Mica computes in float32",
    ("multi_head_attention_forward", "bfloat16"): "nearly equal scores are rounded elsewhere",
}
GRADIENTS_DIFFER = {
    "hardsigmoid": "torch multiplies by a sixth in float32",
}
# Samples that torch takes and Mica refuses.
REFUSED = {"batch_norm": (0,)}  # of one dimension: there are no channels


def name_of(info):
    return f"{info.name}-{info.variant_test_name}" if getattr(info, "variant_test_name", "") else info.name


def short_name(op):
    return op.name.removeprefix("nn.functional.")


def call_both(op, sample):
    inputs = carried((sample.input, sample.args, sample.kwargs))
    torch.manual_seed(0)
    try:
        theirs = op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return None, None, None
    mica.manual_seed(0)
    return theirs, function_in_mica(op.op, op.name)(inputs[0], *inputs[1], **inputs[2]), inputs


@pytest.mark.parametrize("op", FUNCTIONS, ids=name_of)
def test_values(op):
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        if kind not in op.supported_dtypes("cpu") or (short_name(op), dtype) in VALUES_DIFFER:
            continue
        for sample in samples_of(op, kind, at_most=16):
            if isinstance(sample.input, torch.Tensor) and tuple(sample.input.shape) == REFUSED.get(short_name(op)):
                continue
            theirs, ours, _ = call_both(op, sample)
            if theirs is not None:
                assert_same(ours, theirs, f"{op.name} of {dtype}")
                assert_same_strides(ours, theirs)


@pytest.mark.parametrize("op", [op for op in FUNCTIONS if op.supports_autograd], ids=name_of)
def test_gradients_of_both_orders(op):
    if short_name(op) in GRADIENTS_DIFFER:
        pytest.skip(GRADIENTS_DIFFER[short_name(op)])
    twice = op.supports_gradgrad and short_name(op) != "linear_cross_entropy"
    for sample in samples_of(op, torch.float64, requires_grad=True, at_most=8):
        if isinstance(sample.input, torch.Tensor) and tuple(sample.input.shape) == REFUSED.get(short_name(op)):
            continue
        theirs, ours, inputs = call_both(op, sample)
        results, given = floating(theirs), floating((sample.input, sample.args, sample.kwargs))
        if not results or not given:
            continue
        # Seeds that require grad: then the gradients do, too, even where they do not depend on the inputs.
        seeds = [each.requires_grad_() for each in random_like(results)]
        own_seeds, own = in_mica(seeds), floating(inputs)
        try:
            expected = torch.autograd.grad(results, given, seeds, allow_unused=True, create_graph=twice)
        except RuntimeError:
            continue  # a derivative that torch does not have
        found = mica.autograd.grad(floating(ours), own, own_seeds, allow_unused=True, create_graph=twice)
        assert [g is None for g in found] == [g is None for g in expected]
        assert_same([g for g in found if g is not None], [g for g in expected if g is not None], "gradient")
        first, own_first = floating(expected), floating(found)
        if not twice or not first:
            continue
        assert len(first) == len(own_first)
        again = random_like(first)
        try:
            expected = torch.autograd.grad(first, given + seeds, again, allow_unused=True)
        except RuntimeError:
            continue
        found = mica.autograd.grad(own_first, own + own_seeds, in_mica(again), allow_unused=True)
        for mine, other in zip(found, expected, strict=True):
            if mine is None or other is None:  # nothing, or zeros
                assert (mine is None or not mine.any()) and (other is None or not other.any())
            else:
                assert_same(mine, other, "second gradient")


@pytest.mark.parametrize("op", [op for op in FUNCTIONS if op.error_inputs_func], ids=name_of)
def test_wrong_inputs(op):
    for wrong in op.error_inputs("cpu"):
        sample = wrong.sample_input
        inputs = carried((sample.input, sample.args, sample.kwargs))
        with pytest.raises(wrong.error_type, match=wrong.error_regex):
            function_in_mica(op.op, op.name)(inputs[0], *inputs[1], **inputs[2])


# ---- classes -------------------------------------------------------------------------------------------------------

LAYOUTS = {"plain": leaves, "strided": strided, "channels last": channels_last}
# (class, layout): why it is not compared.
NOT_COMPARED = {
    ("CTCLoss", "strided"): "torch misreads concatenated targets that are not contiguous",
    ("NLLLoss", "channels last"): "torch's backward refuses it",
}
STRIDES_DIFFER = {
    "RMSNorm": "torch keeps the input's order, Mica's result is contiguous, as LayerNorm's is in both",
    "ReflectionPad3d": "torch takes a volume without a batch for images in channels last order",
    "ReplicationPad3d": "torch takes a volume without a batch for images in channels last order",
}


def classes(test):
    return pytest.mark.parametrize("info", module_db, ids=lambda info: info.name.removeprefix("nn."))(test)


def make_both(info, case, dtype, training):
    name = info.name.removeprefix("nn.")
    arguments, keywords = case.constructor_input.args, case.constructor_input.kwargs
    own_arguments, own_keywords = carried(arguments), carried(keywords)
    torch.manual_seed(7)
    mica.manual_seed(7)
    theirs = info.module_cls(*arguments, **keywords).to(dtype).train(training)
    return getattr(mica.nn, name)(*own_arguments, **own_keywords).to(in_mica(dtype)).train(training), theirs


def assert_same_state(ours, theirs):
    state, own = theirs.state_dict(), ours.state_dict()
    assert list(own) == list(state)
    if not any(torch.nn.parameter.is_lazy(each) for each in state.values()):
        assert_same(dict(own), dict(state), "state")


def cases_of(info, dtype, training, at_most):
    torch.manual_seed(0)
    return thinned(info.module_inputs_func(info, "cpu", dtype, True, training), at_most)


@classes
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_outputs_and_gradients(info, training):
    name = info.name.removeprefix("nn.")
    for layout, arranged in LAYOUTS.items():
        if (name, layout) in NOT_COMPARED:
            continue
        for case in cases_of(info, torch.float64, training, 8 if layout == "plain" else 3):
            ours, theirs = make_both(info, case, torch.float64, training)
            assert_same_state(ours, theirs)
            assert repr(ours) == repr(theirs)
            inputs = arranged(leaves((case.forward_input.args, case.forward_input.kwargs)))
            own_inputs = carried(inputs)
            torch.manual_seed(3)
            mica.manual_seed(3)
            expected, found = plain(theirs(*inputs[0], **inputs[1])), plain(ours(*own_inputs[0], **own_inputs[1]))
            assert_same(found, expected, layout)
            if layout == "channels last" and name not in STRIDES_DIFFER:
                assert_same_strides(found, expected)
            assert repr(ours) == repr(theirs)
            results = floating(expected)
            assert len(floating(found)) == len(results)
            if results:
                seeds = random_like(results)
                torch.autograd.backward(results, seeds)
                mica.autograd.backward(floating(found), in_mica(seeds))
            for mine, other in zip(
                [*tensors_in(own_inputs), *ours.parameters()], [*tensors_in(inputs), *theirs.parameters()], strict=True
            ):
                assert (mine.grad is None) == (other.grad is None)
                if other.grad is not None:
                    assert_same(mine.grad, other.grad, f"gradient, {layout}")
            assert_same_state(ours, theirs)


@classes
def test_copies_files_and_attributes(info):
    for case in cases_of(info, torch.float32, True, 3):
        ours, theirs = make_both(info, case, torch.float32, True)
        inputs = leaves((case.forward_input.args, case.forward_input.kwargs))
        own_inputs = carried(inputs)
        torch.manual_seed(3)
        mica.manual_seed(3)
        assert_same(plain(ours(*own_inputs[0], **own_inputs[1])), plain(theirs(*inputs[0], **inputs[1])))
        for twin in (copy.deepcopy(ours), copy.copy(ours), pickle.loads(pickle.dumps(ours))):
            assert_same_state(twin, theirs)
            assert repr(twin) == repr(theirs)
        file = io.BytesIO()
        mica.save(ours.state_dict(), file)
        file.seek(0)
        assert str(theirs.load_state_dict(torch.load(file))) == "<All keys matched successfully>"
        file = io.BytesIO()
        torch.save(theirs.state_dict(), file)
        file.seek(0)
        assert str(ours.load_state_dict(mica.load(file))) == "<All keys matched successfully>"
        for name, value in vars(theirs).items():
            if not name.startswith("_"):
                assert hasattr(ours, name)
                if isinstance(value, int | float | str | tuple | None):
                    assert getattr(ours, name) == value, name


@classes
def test_wrong_uses(info):
    if info.module_error_inputs_func is None:
        pytest.skip("none are known")
    for wrong in info.module_error_inputs_func(info, "cpu", torch.float32, False, True):
        made, given = wrong.module_error_input.constructor_input, wrong.module_error_input.forward_input
        with pytest.raises(wrong.error_type, match=wrong.error_regex):
            module = getattr(mica.nn, info.name.removeprefix("nn."))(*carried(made.args), **carried(made.kwargs))
            assert wrong.error_on is not ModuleErrorEnum.CONSTRUCTION_ERROR
            module(*carried(given.args), **carried(given.kwargs))
