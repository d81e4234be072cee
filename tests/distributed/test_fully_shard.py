"""Training with sharded parameters equals training with whole ones on one process."""

import functools

import pytest
import ranks
from sharded_cases import CASES


def all_cases(rank, size):
    import traceback

    from sharded_cases import CASES

    results = {}
    for case in CASES:
        try:
            case(rank, size)
        except BaseException:
            results[case.__name__] = traceback.format_exc()
            with open(os.environ["MICA_TEST_RESULT"], "w") as file:  # noqa: F821
                json.dump(results, file)  # noqa: F821
            os._exit(1)  # the others see that this process is gone  # noqa: F821
        results[case.__name__] = "passed"
    return results


@functools.cache
def results(size):
    """What became of each case on each rank; the processes start once for all cases."""
    with ranks.Ranks(size, all_cases) as world:
        return [each.result or {} for each in world.wait()]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_case(case, size):
    for rank, seen in enumerate(results(size)):
        assert seen.get(case) == "passed", f"rank {rank}: {seen.get(case, 'not reached')}"
