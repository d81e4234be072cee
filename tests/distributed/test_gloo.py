"""Groups across hosts, through Gloo: the processes of these tests are on one host and say that they are not."""

import mica
import mica.distributed as dist
import pytest
import ranks
from ranks import error_of
from test_collectives import asynchronous, gradients, movements, objects, reductions
from test_diagnosis import dies, differ, other_sizes
from test_messages import wrong_size

APART = "os.environ['MICA_DISTRIBUTED_HOST'] = str(rank)\ndist.init_process_group('gloo')"

pytestmark = pytest.mark.skipif(
    not (ranks.PACKAGE / "libmica_gloo.so").exists(), reason="this build has no Gloo: libgloo-dev was not installed"
)


def test_reductions_and_movements():
    for failed, errors, after in ranks.run(3, reductions, init=APART):
        assert failed == [] and after == [3, 3] and len(errors) == 4
    assert ranks.run(3, movements, init=APART) == [[]] * 3


def test_works_objects_and_gradients():
    for values, last, total, _ in ranks.run(2, asynchronous, init=APART):
        assert values == [2.0 * i for i in range(8)] and last == [2, 2, 2] and total == 30
    assert ranks.run(2, objects, init=APART) == ranks.run(2, objects)
    assert ranks.run(2, gradients, init=APART) == ranks.run(2, gradients)


def messages(rank, size):
    out = []
    given = {to: mica.full((5_000,), rank * 10.0 + to) for to in range(size) if to != rank}
    taken = {each: mica.zeros(5_000) for each in given}
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, taken[each], each) for each in taken]
        + [dist.P2POp(dist.isend, given[each], each) for each in given]
    )
    for each in works:
        each.wait()
    out.append(all(taken[each].eq(each * 10.0 + rank).all().item() for each in taken))
    if rank == 0:
        senders = sorted(dist.recv(mica.zeros(2)) for _ in range(size - 1))
        out.append(senders)
    else:
        dist.send(mica.ones(2), 0)
    if rank == 1:
        work = dist.isend(mica.arange(4), 2, tag=3)
        while not work.is_completed():
            pass
        dist.send(mica.empty(0), 2)
    elif rank == 2:
        x = mica.zeros(4, dtype=mica.int64)
        dist.recv(x, 1, tag=3)
        dist.recv(mica.empty(0), 1)
        out.append(x.tolist())
    dist.barrier()
    return out


def test_messages():
    assert ranks.run(3, messages, init=APART) == [[True, [1, 2]], [True], [True, [0, 1, 2, 3]]]
    _, second = ranks.run(2, wrong_size, init=APART)
    assert "rank 0 sends 12 bytes of float32 where rank 1 expects 16 bytes of float32" in second


def test_what_cannot_end_says_why():
    for text, seconds, after in ranks.run(2, differ, init=APART):
        assert "ranks do not agree about what they call" in text and seconds < 10 and "do not agree" in after
        assert "rank 0: all_reduce number 2, float32 [4, 2], SUM" in text
        assert "rank 1: broadcast number 2, float32 [3]" in text and text.count("ranks.py:") >= 2
    for text, _ in ranks.run(2, other_sizes, init=APART):
        assert "float32 [3]" in text and "float32 [4]" in text
    with ranks.Ranks(3, dies, init=APART) as world:
        world.wait()
        for each in (world.ranks[0], world.ranks[2]):
            text, seconds = each.result
            assert "all_reduce number 2" in text and "cannot end" in text and seconds < 10


def late(rank, size):
    if rank == 1:
        import time

        time.sleep(3)
    return error_of(dist.all_reduce, mica.ones(3))


def test_the_time_limit():
    init = "os.environ['MICA_DISTRIBUTED_HOST'] = str(rank)\n"
    init += "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))"
    for text in ranks.run(2, late, init=init):
        assert "all_reduce number 1" in text and "cannot end" in text
