"""Parameters that the fuzzers share: any size, or a power of two, which is often faster."""

from mica.utils.benchmark.fuzzer import FuzzedParameter, ParameterAlias

STEPS = {1: 0.8, 2: 0.06, 4: 0.06, 8: 0.04, 16: 0.04}
LARGEST_ALLOCATION = 2 * 1024**3


def powers(low, high):
    return [2**i for i in range(low.bit_length() - 1, high.bit_length())]


def sizes(low, high):
    """k0, k1 and k2: each one of k_any_i and k_pow2_i."""
    two = powers(low, high)
    return [
        *(FuzzedParameter(f"k_any_{i}", low, high, "loguniform") for i in range(3)),
        *(FuzzedParameter(f"k_pow2_{i}", distribution={size: 1 / len(two) for size in two}) for i in range(3)),
        *(
            FuzzedParameter(
                f"k{i}",
                distribution={ParameterAlias(f"k_any_{i}"): 0.8, ParameterAlias(f"k_pow2_{i}"): 0.2},
                strict=True,
            )
            for i in range(3)
        ),
    ]


def common(low, high):
    """Dimensions and sizes, and a number for what a program wants to draw itself."""
    dims = FuzzedParameter("dim", distribution={1: 0.3, 2: 0.4, 3: 0.3}, strict=True)
    return [dims, *sizes(low, high)]


def entropy():
    return FuzzedParameter("random_value", minval=0, maxval=2**32 - 1, distribution="uniform")
