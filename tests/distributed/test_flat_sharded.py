"""Training with FullyShardedDataParallel equals training with whole parameters on one process."""

import pytest
import ranks
from flat_sharded_cases import CASES


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case, size):
    ranks.check_case("flat_sharded_cases", case, size)
