"""Inputs of functions of one tensor."""

from mica import _C
from mica.utils.benchmark.fuzzer import FuzzedParameter, FuzzedTensor, Fuzzer
from mica.utils.benchmark.op_fuzzers._sizes import LARGEST_ALLOCATION, STEPS, common, entropy


class UnaryOpFuzzer(Fuzzer):
    """x of one to three dimensions and 4 thousand to 32 million elements."""

    def __init__(self, seed, dtype=_C.float32, cuda=False):
        steps = [FuzzedParameter(f"x_step_{i}", distribution=STEPS) for i in range(3)]
        x = FuzzedTensor(
            "x",
            size=("k0", "k1", "k2"),
            steps=("x_step_0", "x_step_1", "x_step_2"),
            probability_contiguous=0.75,
            min_elements=4 * 1024,
            max_elements=32 * 1024**2,
            max_allocation_bytes=LARGEST_ALLOCATION,
            dim_parameter="dim",
            dtype=dtype,
            cuda=cuda,
        )
        super().__init__([*common(16, 16 * 1024**2), *steps, entropy()], [x], seed=seed)
