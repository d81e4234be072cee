"""Training with parts of a batch on several processes equals training with the whole batch on one."""

import pytest
import ranks
from data_parallel_cases import CASES


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case, size):
    ranks.check_case("data_parallel_cases", case, size)
