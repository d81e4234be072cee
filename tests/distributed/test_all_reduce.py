"""all_reduce through the whole machine: processes, store, shared memory."""

import time

import mica
import mica.distributed as dist
import ranks


def sums(rank, size):
    # 10 floats go in one round, the others in chunks that do not divide evenly.
    out = []
    for count in (0, 1, 10, 4096, 4097, 100_003, 700_001):
        x = mica.arange(count, dtype=mica.float32) % 13 + rank
        dist.all_reduce(x)
        expected = (mica.arange(count, dtype=mica.float32) % 13) * size + sum(range(size))
        out.append(bool(x.equal(expected)))
    return out


def test_sums_of_two_and_three_processes():
    for size in (2, 3):
        assert ranks.run(size, sums) == [[True] * 7] * size


def starts(rank, size):
    began = time.perf_counter()
    dist.init_process_group("gloo")
    x = mica.ones(3)
    dist.all_reduce(x)
    return x.tolist(), time.perf_counter() - began


def test_the_world_is_found_by_the_environment():
    for tensor, _ in ranks.run(2, starts, init=""):
        assert tensor == [2, 2, 2]


def mixed(rank, size):
    # Pieces in slots, rounds in outboxes, and a rank that runs ahead of the other, which has all slots to fill.
    good = []
    for turn, count in enumerate((5_000_000, 10, 70_000, 5_000_001, 200_000)):
        if turn % 2 == rank:
            time.sleep(0.05)
        x = mica.arange(count) % 7 + rank
        dist.all_reduce(x)
        y = mica.full((100_000,), float(turn))
        dist.broadcast(y, turn % 2)
        z = mica.full((50_000,), float(rank))
        dist.reduce(z, turn % 2)
        good += [bool(x.equal(mica.arange(count) % 7 * 2 + 1)), z[-1].item() == (1 if rank == turn % 2 else rank)]
    return good


def test_a_rank_that_runs_ahead_of_the_other():
    assert ranks.run(2, mixed) == [[True] * 10] * 2


def shortcuts(rank, size):
    # Calls that the short way does not take go the longer one: other classes, strides, reductions, groups, works.
    class Own(mica.Tensor):
        pass

    results = []
    for x in (
        mica.nn.Parameter(mica.ones(2)), mica.ones(2).as_subclass(Own), mica.ones(2, 2).t()[:, 0], mica.ones(2).bool(),
        mica.ones(2).cfloat(), mica.tensor(1.0), mica.ones(2).bfloat16(),
    ):  # fmt: skip
        dist.all_reduce(x)
        results.append(x.detach().flatten()[0].item())
    dist.all_reduce(x := mica.full((2,), 3.0), dist.ReduceOp(dist.ReduceOp.MAX), group=dist.new_group([0, 1]))
    results.append(x[0].item())
    return [abs(each) for each in results]


def test_tensors_that_are_not_plain():
    assert ranks.run(2, shortcuts) == [[2, 2, 2, True, 2, 2, 2, 3]] * 2
