"""Messages between processes."""

import time

import mica
import mica.distributed as dist
import ranks
from ranks import error_of


def messages(rank, size):
    out = []
    if rank == 0:
        dist.send(mica.arange(5), 1)
        dist.send(mica.arange(300_000.0), 1)  # more than a ring holds
        dist.send(mica.ones(2, 3).t(), 1, tag=7)
        dist.send(mica.zeros(2), 1, tag=8)
        dist.send(mica.empty(0), 1)
    elif rank == 1:
        x, big = mica.zeros(5, dtype=mica.int64), mica.zeros(300_000)
        out.append(dist.recv(x, 0))
        dist.recv(big, 0)
        late, early = mica.full((2,), 5.0), mica.zeros(3, 2).t().contiguous().t()
        dist.recv(late, 0, tag=8)  # behind the one of tag 7
        dist.recv(early, 0, tag=7)
        dist.recv(mica.empty(0), 0)
        out += [x.tolist(), big.equal(mica.arange(300_000.0)), late.tolist(), early.tolist()]
    dist.barrier()
    # Every rank sends to every other at once, and receives first: this would lock up if messages went one after the
    # other.
    given = {to: mica.full((50_000,), rank * 10.0 + to) for to in range(size) if to != rank}
    taken = {each: mica.zeros(50_000) for each in given}
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, taken[each], each) for each in taken]
        + [dist.P2POp(dist.isend, given[each], each) for each in given]
    )
    for each in works:
        each.wait()
    out.append(all(taken[each].eq(each * 10.0 + rank).all().item() for each in taken))
    if rank == 2:
        any_of = mica.zeros(1)
        senders = {dist.recv(any_of) for _ in range(size - 1)}
        out.append(sorted(senders))
    else:
        dist.send(mica.ones(1), 2)
    # Sent without anyone waiting for it, so that a thread has to carry it.
    if rank == 0:
        work = dist.isend(mica.arange(200_000), 1)
        end = time.monotonic() + 20
        while not work.is_completed() and time.monotonic() < end:
            time.sleep(0.01)
        out.append(work.is_completed())
        work.wait()
    elif rank == 1:
        x = mica.zeros(200_000, dtype=mica.int64)
        dist.recv(x, 0)
        out.append(x.equal(mica.arange(200_000)))
    dist.barrier()
    return out


def test_messages_of_three_processes():
    first, second, third = ranks.run(3, messages)
    assert first == [True, True]
    assert second == [0, [0, 1, 2, 3, 4], True, [0, 0], [[1, 1]] * 3, True, True]
    assert third == [True, [0, 1]]


def wrong_size(rank, size):
    x = mica.zeros(3 + rank)
    return error_of(dist.send, x, 1) if rank == 0 else error_of(dist.recv, x, 0)


def test_a_message_of_another_size_is_named():
    _, second = ranks.run(2, wrong_size)
    assert "rank 0 sends 12 bytes of float32 where rank 1 expects 16 bytes of float32" in second
