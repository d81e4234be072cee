"""Training of models that are spread over processes: every process runs the cases of tensor_parallel_cases.py."""

import os

import pytest
import ranks

SIZES = [2, 4] if os.environ.get("MICA_LONG_TESTS") else [2]


def cases(rank, size):
    import tensor_parallel_cases

    for case in tensor_parallel_cases.CASES:
        case(rank, size)


@pytest.mark.parametrize("size", SIZES)
def test_losses_are_those_of_one_process(size):
    ranks.run(size, cases, limit=600)
