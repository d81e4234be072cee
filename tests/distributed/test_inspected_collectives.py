"""inspect.collectives(): what was called, and who was late."""

import time

import mica
import mica.distributed as dist
import mica.inspect
import ranks


def inspected(rank, size):
    with mica.inspect.collectives() as seen:
        dist.all_reduce(mica.ones(10))
        dist.broadcast(mica.ones(3, dtype=mica.float64), 0)
        if rank == 1:
            time.sleep(0.4)
        dist.all_reduce(mica.ones(10), async_op=True).wait()
    dist.barrier()
    rows = [(row["operation"], row["dtype"], row["calls"], row["bytes"]) for row in seen.by_line()]
    return (
        sorted(rows),
        seen.bytes,
        seen.waited.get(1 - rank, 0),
        all("program.py:" in each.line for each in seen),
        repr(seen),
    )


def test_what_was_called_and_who_was_late():
    first, second = ranks.run(2, inspected)
    for rows, size, _, places, text in (first, second):
        assert rows == [["all_reduce", "float32", 1, 40]] * 2 + [["broadcast", "float64", 1, 24]]
        assert size == 104 and places and "all_reduce" in text
    assert first[2] > 0.2 > second[2]


def test_without_groups_there_is_nothing_to_see():
    with mica.inspect.collectives() as seen:
        mica.ones(3).sum()
    assert len(seen) == 0 and seen.waited == {} and repr(seen) == "no collectives"
