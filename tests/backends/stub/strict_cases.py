"""What test_strict_backend.py runs in a process of its own: every operation's samples through slots that get garbage.

tests/backends/stub/strict_backend.cpp says what it does to them. Its kernels are the CPU's, so that results are equal.
"""

from pathlib import Path

import mica
import pytest
from sample_device import STORAGE, OnDevice, is_random
from sample_runner import Evaluator, load_samples, outcome, tensors_of

LIBRARIES = Path(mica._C.__file__).parents[2] / "tests" / "backends"
SAMPLES = [s for s in load_samples() if not is_random(s)]


class OnStrict(OnDevice):
    device = "strict"


@pytest.fixture(scope="module", autouse=True)
def strict():
    assert mica.backends.open(LIBRARIES / "libmica_strict.so") == "strict"


def ids(sample):
    return sample.id


def assert_equal(there, here):
    assert there.dtype == here.dtype and tuple(there.shape) == tuple(here.shape)
    if here.is_floating_point() or here.is_complex():
        mica.testing.assert_close(there.detach().cpu(), here.detach(), rtol=1e-9, atol=1e-9, equal_nan=True)
    else:
        assert there.cpu().tolist() == here.tolist()


@pytest.mark.parametrize("mode", ["plain", "noncontiguous"])
@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_values(sample, mode):
    if mode == "noncontiguous" and sample.op in STORAGE:
        pytest.skip("reads the storage, which a copy does not keep")
    here = tensors_of(Evaluator(mica, mode=mode).run(sample.text))
    there = tensors_of(OnStrict(mica, mode=mode).run(sample.text))
    for a, b in zip(there, here, strict=True):
        assert_equal(a, b)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.differentiable], ids=ids)
def test_gradients(sample):
    def gradients(evaluator):
        outputs = [t for t in tensors_of(evaluator.run(sample.text)) if t.requires_grad]
        if not outputs or not evaluator.leaves:
            return []
        loss = sum((t.abs() if t.is_complex() else t).sum() for t in outputs)
        return mica.autograd.grad(loss, evaluator.leaves, allow_unused=True)

    here, there = gradients(Evaluator(mica, requires_grad=True)), gradients(OnStrict(mica, requires_grad=True))
    for a, b in zip(there, here, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_equal(a, b)


@pytest.mark.parametrize("sample", SAMPLES, ids=ids)
def test_any_byte_but_zero_is_true(sample):
    plain, odd = (outcome(OnStrict(mica, mode, dtype="bool"), sample.text) for mode in ("plain", "bytes"))
    assert type(plain) is type(odd)
    if isinstance(plain, str):
        assert plain == odd
        return
    for a, b in zip(plain, odd, strict=True):
        assert_equal(a, b.cpu())
