"""Options that change what ranks compute: every process runs the cases of option_cases.py."""

import pytest
import ranks
from option_cases import CASES


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case, size):
    ranks.check_case("option_cases", case, size)
