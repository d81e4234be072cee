"""Training through a pipeline of stages equals training on one process."""

import pytest
import ranks
from pipeline_cases import CASES


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case, size):
    ranks.check_case("pipeline_cases", case, size)
