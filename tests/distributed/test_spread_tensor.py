"""Tensors that are spread over processes: every process runs the cases of spread_tensor_cases.py and spread_tensor_use_cases.py."""

import pytest
import ranks


def cases(rank, size):
    import spread_tensor_cases
    import spread_tensor_use_cases

    for case in spread_tensor_use_cases.CASES if size == 2 else ():
        case(rank, size)
    for case in spread_tensor_cases.CASES:
        if size == 2 or case in spread_tensor_cases.ON_FOUR:
            case(rank, size)


@pytest.mark.parametrize("size", [2, 4])
def test_spread_tensors(size):
    ranks.run(size, cases, limit=300)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 4])
def test_spread_tensors_in_every_combination_of_ways(size):
    ranks.run(size, cases, limit=900, environment={"MICA_LONG_TESTS": "1"})
