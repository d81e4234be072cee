"""A few hundred of the random programs; `make compiler-fuzz` runs 100,000."""

import pytest
import random_layers
import random_programs


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_compiled_programs_give_the_same_bits(first):
    for seed in range(first, first + 50):
        random_programs.check(seed)


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_compiled_layers_give_the_same_bits(first):
    for seed in range(first, first + 25):
        random_layers.check(seed)
