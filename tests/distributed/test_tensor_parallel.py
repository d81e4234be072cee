"""Training of models that are spread over processes: every process runs the cases of tensor_parallel_cases.py."""

import pytest
import ranks
from tensor_parallel_cases import CASES


@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case):
    ranks.check_case("tensor_parallel_cases", case, 2)
