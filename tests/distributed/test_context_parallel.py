"""Attention over a sequence that processes divide equals that of one process."""

import pytest
import ranks
from context_parallel_cases import CASES


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case, size):
    ranks.check_case("context_parallel_cases", case, size)
