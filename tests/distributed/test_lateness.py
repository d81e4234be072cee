"""A rank that does not come: an error where it cannot, a warning where it only takes long."""

import re
import time

import mica
import mica.distributed as dist
import pytest
import ranks
from ranks import error_of


def busy(rank, size):
    if rank == 1:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            sum(range(1000))
    dist.all_reduce(x := mica.ones(3))
    return x.tolist()


def test_a_rank_that_only_takes_long_is_waited_for_and_named():
    with ranks.Ranks(3, busy, environment={"MICA_DISTRIBUTED_LATE_WARNING": "2"}) as world:
        world.wait()
        assert [each.result for each in world.ranks] == [[3.0] * 3] * 3
        text = world.ranks[0].text
        # 2 s, or more where the machine is busy.
        assert re.search(r"rank 0 has waited [2-9] s for rank 1 in all_reduce number 1", text)
        assert "rank 1 (process" in text and "Its program is at " in text and "program.py:" in text
        assert " in busy (the process is running, with " in text
        assert "rank 2 (process" in text and "in all_reduce number 1, float32 [3]" in text
        assert "has waited" not in world.ranks[1].text + world.ranks[2].text  # one speaks for all


def too_late(rank, size):
    if rank == 1:
        time.sleep(3)
    began = time.monotonic()
    return error_of(dist.all_reduce, mica.ones(3)), time.monotonic() - began


def test_a_limit_for_all_ranks_that_are_late():
    first, second = ranks.run(2, too_late, environment={"MICA_DISTRIBUTED_LATE_LIMIT": "1.5"})
    assert "Timed out after 1.5 s: all_reduce number 1" in first[0] and first[1] < 3
    assert "Its program is at " in first[0] and " in too_late (the process is sleeping, with 0" in first[0]
    assert "Timed out after 1.5 s" in second[0]


def test_limits_that_are_no_seconds(monkeypatch):
    from mica.distributed.lateness import seconds_of

    for text in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("MICA_DISTRIBUTED_LATE_LIMIT", text)
        assert f"above 0, but it is '{text}'" in error_of(seconds_of, "MICA_DISTRIBUTED_LATE_LIMIT", 1)


def started_elsewhere(rank, size):
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    began = time.monotonic()
    work = dist.all_reduce(mica.ones(3), group=first if rank == 0 else second, async_op=True)
    return error_of(work.wait), time.monotonic() - began


def test_a_circle_of_works():
    for text, seconds in ranks.run(2, started_elsewhere):
        assert "ranks wait for each other in a circle" in text and seconds < 10


def started_and_late(rank, size):
    group = dist.new_group()
    if rank == 2:  # takes long before it comes to the group: nobody else is at fault
        time.sleep(7)
    big = mica.zeros(3_000_000)  # several rounds
    if rank == 0:
        work = dist.broadcast(mica.ones(3), 0, group=group, async_op=True)
        again = dist.broadcast(big.fill_(1), 0, group=group, async_op=True)
        dist.barrier()
        work.wait()
        again.wait()
    else:
        dist.broadcast(mica.ones(3), 0, group=group)
        dist.broadcast(big, 0, group=group)
        dist.barrier()
    return big[-1].item()


@pytest.mark.long
def test_a_group_whose_thread_waits_is_no_part_of_a_circle():
    # Rank 1 waits for the broadcast of rank 0, whose thread waits for rank 2; rank 0's program waits for rank 1.
    assert ranks.run(3, started_and_late) == [1, 1, 1]


def no_new_group(rank, size):
    began = time.monotonic()
    text = error_of(dist.new_group, [0, 1]) if rank == 1 else error_of(dist.all_reduce, mica.ones(3))
    return text, time.monotonic() - began


def test_a_new_group_that_another_rank_does_not_make():
    for text, seconds in ranks.run(2, no_new_group):
        assert "ranks wait for each other in a circle" in text and seconds < 10
        assert "rank 1 waits for rank 0 in new_group '1' at " in text
        assert "rank 0 waits for rank 1 in all_reduce number 1" in text
