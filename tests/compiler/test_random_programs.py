"""A few hundred of the random programs; `make compiler-fuzz` runs 100,000."""

import pytest
from random_programs import check


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_compiled_programs_give_the_same_bits(first):
    for seed in range(first, first + 50):
        check(seed)
