"""Inputs of functions of two tensors."""

from mica import _C
from mica.utils.benchmark.fuzzer import FuzzedParameter, FuzzedTensor, Fuzzer, ParameterAlias
from mica.utils.benchmark.op_fuzzers._sizes import LARGEST_ALLOCATION, STEPS, common, entropy


class BinaryOpFuzzer(Fuzzer):
    """x and y of one to three dimensions, of which y's are sometimes 1, to be broadcast."""

    def __init__(self, seed, dtype=_C.float32, cuda=False):
        other = [
            FuzzedParameter(f"y_k{i}", distribution={ParameterAlias(f"k{i}"): 0.8, 1: 0.2}, strict=True)
            for i in range(3)
        ]
        steps = [FuzzedParameter(f"{name}_step_{i}", distribution=STEPS) for i in range(3) for name in ("x", "y")]
        shared = {
            "probability_contiguous": 0.75,
            "max_allocation_bytes": LARGEST_ALLOCATION,
            "dim_parameter": "dim",
            "dtype": dtype,
            "cuda": cuda,
        }
        x = FuzzedTensor(
            "x",
            size=("k0", "k1", "k2"),
            steps=("x_step_0", "x_step_1", "x_step_2"),
            min_elements=4 * 1024,
            max_elements=32 * 1024**2,
            **shared,
        )
        y = FuzzedTensor("y", size=("y_k0", "y_k1", "y_k2"), steps=("x_step_0", "x_step_1", "x_step_2"), **shared)
        super().__init__([*common(16, 16 * 1024**2), *other, *steps, entropy()], [x, y], seed=seed)
