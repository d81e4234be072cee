"""Values for all ranks, and failures of one that all hear of."""

import mica.distributed as dist
import pytest
import ranks
from mica.distributed.collective_utils import all_gather, broadcast
from ranks import error_of


def values(rank, size):
    from mica.distributed.collective_utils import all_gather, all_gather_object_enforce_type, broadcast

    world, gathered = dist.group.WORLD, [None] * size
    all_gather_object_enforce_type(world, gathered, [rank])
    found = {
        "value": broadcast(rank + 10, pg=world),
        "function": broadcast(lambda: rank + 10, rank=size - 1, pg=world),
        "exception": error_of(broadcast, lambda: 1 / 0, pg=world),
        "failure": error_of(broadcast, None, success=rank == 1, pg=world),
        "all": all_gather(lambda: rank * 2, stage_name="s", pg=world),
        "alone": all_gather(rank),
        "one fails": error_of(all_gather, lambda: 1 / rank, pg=world),
        "stages": error_of(all_gather, rank, stage_name=f"s{rank}", pg=world),
        "types": error_of(all_gather_object_enforce_type, world, [None] * size, rank or "zero"),
        "gathered": gathered,
    }
    return found


def test_values_and_failures_of_two_ranks():
    for rank, found in enumerate(ranks.run(2, values)):
        assert found == {
            "value": 10,
            "function": 11,
            "exception": "RuntimeError: Rank 0 failed: exception division by zero",
            "failure": "RuntimeError: Rank 0 failed",
            "all": [0, 2],
            "alone": [rank],
            "one fails": "RuntimeError: all_gather failed with exception division by zero",
            "stages": "RuntimeError: all_gather: the ranks are at different stages ['s0', 's1']",
            "types": "TypeError: Object type at index 1 is <class 'int'>, while first object type is <class 'str'>",
            "gathered": [[0], [1]],
        }


def test_without_a_group():
    assert broadcast(5) == broadcast(lambda: 5) == 5 and all_gather(5) == [5]
    with pytest.raises(RuntimeError, match="Rank 0 failed: exception division by zero"):
        broadcast(lambda: 1 / 0)
    with pytest.raises(AssertionError, match="Data or Function is expected to be None if not successful"):
        broadcast(5, success=False)
