"""Every operation's samples on CUDA against the CPU: values, gradients, strided inputs, other dtypes."""

import mica
import pytest
from sample_device import STORAGE, OnDevice, is_random
from sample_runner import Evaluator, load_samples, outcome, tensors_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

SAMPLES = load_samples()
# Half a unit in the last place, times what sums and functions of a sample's size may add.
TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "bfloat16": 3e-2}


@pytest.fixture(autouse=True)
def exact_convolutions():
    mica.backends.cudnn.allow_tf32 = False
    yield
    mica.backends.cudnn.allow_tf32 = True


def ids(sample):
    return sample.id


def assert_alike(there, here, tolerance):
    assert there.dtype == here.dtype and tuple(there.shape) == tuple(here.shape)
    if there.dtype in (mica.float32, mica.float64, mica.bfloat16, mica.float16, mica.complex64, mica.complex128):
        mica.testing.assert_close(there.detach().cpu(), here.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        assert there.cpu().tolist() == here.tolist()


@pytest.mark.parametrize("mode", ["plain", "noncontiguous"])
@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_values(sample, mode):
    if mode == "noncontiguous" and sample.op in STORAGE:
        pytest.skip("reads the storage, which a copy does not keep")
    here = tensors_of(Evaluator(mica, mode=mode).run(sample.text))
    there = tensors_of(OnDevice(mica, mode=mode).run(sample.text))
    assert len(here) == len(there)
    for a, b in zip(there, here, strict=True):
        if is_random(sample):
            assert a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape)
        else:
            assert_alike(a, b, TOLERANCE["float64"])


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.differentiable and not is_random(s)], ids=ids)
def test_gradients(sample):
    def gradients(evaluator):
        outputs = [t for t in tensors_of(evaluator.run(sample.text)) if t.requires_grad]
        if not outputs or not evaluator.leaves:
            return None
        loss = sum((t.abs() if t.is_complex() else t).sum() for t in outputs)
        return mica.autograd.grad(loss, evaluator.leaves, allow_unused=True)

    here = gradients(Evaluator(mica, requires_grad=True))
    if here is None:
        pytest.skip("nothing requires a gradient")
    there = gradients(OnDevice(mica, requires_grad=True))
    for a, b in zip(there, here, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_alike(a, b, 1e-8)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sample", [s for s in SAMPLES if not is_random(s)], ids=ids)
def test_narrow_floats(sample, dtype):
    try:
        here = tensors_of(Evaluator(mica, dtype=dtype).run(sample.text))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        pytest.skip(f"the CPU does not take it: {str(error)[:60]}")
    there = tensors_of(OnDevice(mica, dtype=dtype).run(sample.text))
    for a, b in zip(there, here, strict=True):
        assert a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape)
        # Integers picked by narrow floats may differ where those are rounded otherwise.
        if a.is_floating_point() or a.is_complex():
            assert_alike(a, b, TOLERANCE[dtype])


@pytest.mark.parametrize("sample", [s for s in SAMPLES if not is_random(s)], ids=ids)
def test_any_byte_but_zero_is_true(sample):
    plain, odd = (outcome(OnDevice(mica, mode, dtype="bool"), sample.text) for mode in ("plain", "bytes"))
    assert type(plain) is type(odd)
    if isinstance(plain, str):
        assert plain == odd
        return
    for a, b in zip(plain, odd, strict=True):
        assert_alike(a, b.cpu(), TOLERANCE["float32"])
