"""What cannot end says why, on every rank, within ten seconds."""

import datetime
import os
import signal
import time

import mica
import mica.distributed as dist
import ranks
from ranks import error_of


def differ(rank, size):
    dist.all_reduce(mica.ones(3))
    began = time.monotonic()
    text = error_of(dist.broadcast, mica.ones(3), 0) if rank == 1 else error_of(dist.all_reduce, mica.ones(4, 2))
    return text, time.monotonic() - began, error_of(dist.barrier)


def test_ranks_that_call_different_operations():
    for text, seconds, after in ranks.run(2, differ):
        assert text.startswith("DistBackendError: ranks do not agree about ") and seconds < 10
        assert "rank 0 (process" in text and "all_reduce number 2, float32 [4, 2], SUM, at " in text
        assert "rank 1 (process" in text and "broadcast number 2, float32 [3], root 0, at " in text
        assert text.count("ranks.py:") >= 2  # the line that calls: error_of's
        assert "ranks do not agree" in after  # the group stays as it is


def other_sizes(rank, size):
    return error_of(dist.all_reduce, mica.ones(3 + rank)), error_of(dist.barrier)


def test_ranks_that_give_other_sizes_or_dtypes():
    for text, _ in ranks.run(2, other_sizes):
        assert "float32 [3]" in text and "float32 [4]" in text


def dies(rank, size):
    dist.all_reduce(mica.ones(3))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    return error_of(dist.all_reduce, mica.ones(3)), time.monotonic() - began


def test_a_process_that_is_killed():
    with ranks.Ranks(3, dies) as world:
        world.wait()
        for each in (world.ranks[0], world.ranks[2]):
            text, seconds = each.result
            assert "rank 1 (process" in text and seconds < 10
            assert "was killed by signal 9 (SIGKILL)" in text or "is gone" in text
            assert "for which waits all_reduce number 2" in text


def leaves(rank, size):
    if rank == 1:
        return None
    return error_of(dist.all_reduce, mica.ones(3))


def test_a_rank_whose_program_is_over():
    text = ranks.run(2, leaves)[0]
    assert "has left the group, for which waits all_reduce number 1" in text or "is gone" in text or "has ended" in text


def circle(rank, size):
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    began = time.monotonic()
    text = error_of(dist.all_reduce, mica.ones(3), group=first if rank == 0 else second)
    return text, time.monotonic() - began


def test_ranks_that_wait_for_each_other_in_two_groups():
    for text, seconds in ranks.run(2, circle):
        assert "ranks wait for each other in a circle" in text and seconds < 10
        assert "group '1'" in text and "group '2'" in text


def late(rank, size):
    began = time.monotonic()
    if rank == 1:
        time.sleep(3)
    text = error_of(dist.all_reduce, mica.ones(3))
    return text, time.monotonic() - began


def test_the_time_limit_of_a_group():
    init = "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))"
    first, second = ranks.run(2, late, init=init)
    assert "Timed out after 1 s: all_reduce number 1" in first[0] and "waits for rank 1" in first[0]
    assert "Timed out after 1 s" in second[0]


def missing(rank, size):
    if rank == 1:
        time.sleep(2.5)
        return None
    limit = datetime.timedelta(seconds=1)
    return error_of(dist.init_process_group, "gloo", timeout=limit)


def test_a_rank_that_never_comes_to_the_start():
    with ranks.Ranks(2, missing, init="") as world:
        world.wait()
        assert "has not met within 1 s: rank 1 did not come" in world.ranks[0].result


def monitored(rank, size):
    limit = datetime.timedelta(seconds=1)
    dist.monitored_barrier()
    text = None if rank == 1 else error_of(dist.monitored_barrier, timeout=limit, wait_all_ranks=True)
    if rank == 1:
        time.sleep(1.5)
    return text


def test_monitored_barriers():
    first, _, third = ranks.run(3, monitored)
    assert first == "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 1000 ms"
    assert third.startswith("RuntimeError: Rank 2 successfully reached monitoredBarrier")


def forks(rank, size):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, error_of(dist.all_reduce, mica.ones(1)).encode())
        os._exit(0)
    text = os.read(read, 1000).decode()
    os.wait()
    dist.all_reduce(x := mica.ones(1))
    return text, x.item()


def leaves_in_a_child(rank, size):
    import gc
    import signal

    dist.all_reduce(mica.ones(1), async_op=True).wait()  # the engine has a thread now
    dist.all_reduce(x := mica.ones(1))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        dist.destroy_process_group()
        gc.collect()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(alone := mica.ones(1))
        os._exit(0 if alone.item() == 1 else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    dist.all_reduce(x)
    return status, x.item()


def test_a_child_of_fork_leaves_no_group_of_its_parent():
    assert ranks.run(2, leaves_in_a_child) == [[0, 4]] * 2


def test_a_child_of_fork():
    for text, value in ranks.run(2, forks):
        assert "cannot be used in a child of fork" in text and value == 2


def interrupted(rank, size):
    if rank == 1:
        time.sleep(1)
        return error_of(dist.all_reduce, mica.ones(1))
    signal.setitimer(signal.ITIMER_REAL, 0.3)

    def stop(*args):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    try:
        dist.all_reduce(mica.ones(1))
    except KeyboardInterrupt:
        return "interrupted"
    return "not"


def test_waiting_can_be_interrupted():
    first, second = ranks.run(2, interrupted)
    assert first == "interrupted" and "rank 0 was interrupted in all_reduce" in second
