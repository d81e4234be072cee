"""Every operation's samples on the GPU: the same values as on the CPU, or a clear word that the backend lacks a kernel."""

import sys
from pathlib import Path

import mica
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
from sample_runner import Evaluator, load_samples, tensors_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

# These draw from the generator of their device, or show memory as it is.
OWN_NUMBERS = ("rand", "dropout", "bernoulli", "multinomial", "normal(", "poisson", "empty")


@pytest.mark.parametrize(
    "sample", [s for s in load_samples() if not any(n in s.text for n in OWN_NUMBERS)], ids=lambda s: s.id
)
def test_samples_give_the_same_on_the_gpu(sample):
    on_cpu = tensors_of(Evaluator(mica).run(sample.text))
    try:
        on_gpu = tensors_of(Evaluator(mica, device="cuda").run(sample.text))
    except NotImplementedError as error:
        assert "has no such kernel" in str(error) or "not implemented for" in str(error), error
        pytest.skip(f"the CUDA backend says: {error}")
    for a, b in zip(on_cpu, on_gpu, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        # float64 throughout: sums may be taken in another order, functions differ in their last bits.
        mica.testing.assert_close(b.cpu(), a, rtol=1e-10, atol=1e-12, equal_nan=True)
