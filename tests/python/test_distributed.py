"""mica.distributed: a world of one process."""

import mica
import mica.distributed as dist
import pytest
from mica.distributed.nn import functional as collectives


@pytest.fixture
def world():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_before_it_is_started():
    assert dist.is_available() and not dist.is_initialized() and dist.group.WORLD is None
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.get_rank()


def test_a_larger_world_needs_an_address(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match="environment variable MASTER_ADDR expected, but not set"):
        dist.init_process_group(world_size=4, rank=0)
    assert not dist.is_initialized()


def test_asking(world):
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "gloo")
    assert dist.get_process_group_ranks(world) == [0] and dist.get_global_rank(world, 0) == 0
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group("gloo", rank=0, world_size=1)
    assert dist.get_world_size(dist.new_group([0])) == 1 and dist.get_rank(dist.GroupMember.NON_GROUP_MEMBER) == -1


def test_collectives(world):
    x, out = mica.arange(3.0), mica.zeros(3)
    assert dist.all_reduce(x) is None and dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True).wait()
    assert x.tolist() == [0, 1, 2]
    dist.all_gather([out], x)
    assert out.tolist() == [0, 1, 2]
    whole = mica.zeros(1, 3)
    dist.all_gather_into_tensor(whole, x)
    assert whole.tolist() == [[0, 1, 2]]
    dist.scatter(out, [x * 2])
    assert out.tolist() == [0, 2, 4]
    dist.reduce_scatter_tensor(out, x)
    dist.all_to_all_single(out, x)
    dist.broadcast(x, 0)
    dist.barrier()
    objects = [None]
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}]
    with pytest.raises(ValueError, match="destination rank should not be the same as the rank of the current process"):
        dist.send(x, 0)
    with pytest.raises(ValueError, match="expected a list of 1"):
        dist.all_gather([out, out], x)
    with pytest.raises(RuntimeError, match="invalid root rank: 3"):
        dist.broadcast(x, 3)


def test_collectives_with_gradients(world):
    x = mica.ones(2, requires_grad=True)
    (collectives.all_gather(x)[0] * 3 + collectives.all_reduce(x)).sum().backward()
    assert x.grad.tolist() == [4, 4]


def test_data_parallel_module(world):
    model = mica.nn.Linear(2, 2)
    parallel = mica.nn.parallel.DistributedDataParallel(model)
    x = mica.randn(3, 2)
    assert mica.equal(parallel(x), model(x)) and list(parallel.state_dict()) == ["module.weight", "module.bias"]
    with parallel.no_sync():
        parallel(x).sum().backward()
    assert model.weight.grad is not None
    optimizer = dist.optim.ZeroRedundancyOptimizer(parallel.parameters(), mica.optim.SGD, lr=0.5)
    before = model.weight.detach().clone()
    optimizer.step()
    assert mica.allclose(model.weight, before - 0.5 * model.weight.grad)


def test_a_launcher_starts_one_process(tmp_path):
    import os
    import subprocess
    import sys
    from pathlib import Path

    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "print(dist.get_world_size(), os.environ['LOCAL_RANK'], sys.argv[1:])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(mica.__file__).parent.parent.absolute())}
    start = "import sys, runpy; from mica._as_torch.alias import install; install(); runpy.run_module('torch.distributed.run', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", start]
    done = subprocess.run(
        [*command, "--standalone", "--nproc_per_node=1", str(script), "--rate", "3"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.strip() == "1 0 ['--rate', '3']", done.stderr


# ---- collectives that return their result, as torch's do in a world of one


def test_functional_collectives_copy_and_have_gradients(world):
    from mica.distributed import _functional_collectives as fc

    x = mica.arange(6.0).reshape(3, 2).requires_grad_()
    calls = [
        lambda: fc.broadcast(x, 0, world), lambda: fc.all_reduce(x, "sum", world), lambda: fc.all_reduce(x, "sum", [0]),
        lambda: fc.all_reduce(x, "sum", world.group_name), lambda: fc.all_gather_tensor(x, -1, world),
        lambda: fc.all_gather_tensor_autograd(x, 0, world), lambda: fc.reduce_scatter_tensor(x, "sum", 1, world),
        lambda: fc.reduce_scatter_tensor_autograd(x, "sum", 0, world), lambda: fc.all_to_all_single(x, [3], [3], world),
        lambda: fc.all_to_all_single_autograd(x, None, None, world), lambda: fc.permute_tensor(x, [0], world),
        lambda: fc.all_reduce_coalesced([x], "sum", world)[0],
    ]  # fmt: skip
    for call in calls:
        x.grad = None
        made = call()
        assert made.equal(x) and made.data_ptr() != x.data_ptr()
        (made * 2).sum().backward()
        assert x.grad.eq(2).all()
    assert fc.wait_tensor(x).equal(x)
    average = fc.all_reduce(x, "avg", world)
    assert average.equal(x)
    with pytest.raises(RuntimeError, match="all_reduce backward only supports 'sum' reduction, got 'avg'"):
        average.sum().backward()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda fc, x, g: fc.all_reduce(x, "nope", g), RuntimeError, "Unrecognized reduce_op: nope"),
        (
            lambda fc, x, g: fc.all_reduce(x, "sum", None),
            ValueError,
            "Unsupported group type: <class 'NoneType'>, None",
        ),
        (lambda fc, x, g: fc.all_reduce(x, "sum", [0, 1]), ValueError, r"no group has the ranks \[0, 1\]"),
        (lambda fc, x, g: fc.all_reduce(x.long(), "avg", g), RuntimeError, "result type Float can't be cast"),
        (lambda fc, x, g: fc.all_gather_tensor(x, 5, g), IndexError, "Dimension out of range"),
        (
            lambda fc, x, g: fc.all_to_all_single(x, [2], [2], g),
            RuntimeError,
            "Split sizes doesn't match total dim 0 size",
        ),
        (lambda fc, x, g: fc.permute_tensor(x, [1], g), IndexError, "where each of 1 processes sends"),
        (lambda fc, x, g: fc.broadcast(x, 1, g), ValueError, "there is no process 1"),
    ],
)
def test_functional_collectives_check_what_they_are_given(world, call, error, words):
    from mica.distributed import _functional_collectives as fc

    with pytest.raises(error, match=words):
        call(fc, mica.arange(6.0).reshape(3, 2), world)


def test_a_communication_hook_is_called_with_buckets(world):
    net = mica.nn.Sequential(mica.nn.Linear(2, 3), mica.nn.Linear(3, 1))
    parallel = mica.nn.parallel.DistributedDataParallel(net)
    seen = []

    def hook(state, bucket: dist.GradBucket) -> mica.futures.Future[mica.Tensor]:
        seen.append((state, bucket.index(), bucket.is_last(), bucket.buffer().shape, len(bucket.gradients())))
        assert all(g.shape == p.shape for g, p in zip(bucket.gradients(), bucket.parameters(), strict=True))
        future = mica.futures.Future()
        future.set_result(bucket.buffer() * 10)
        return future

    parallel.register_comm_hook("state", hook)
    # The gradients that torch 2.13 gives: 1 of a pass, times 10; plus 1, times 10; plus 1 without synchronisation.
    for expected in (10, 110):
        parallel(mica.ones(1, 2)).sum().backward()
        assert net[1].bias.grad.item() == expected
    with parallel.no_sync():
        parallel(mica.ones(1, 2)).sum().backward()
    assert net[1].bias.grad.item() == 111 and seen == [("state", 0, True, (13,), 4)] * 2
    with pytest.raises(RuntimeError, match="can only be called once"):
        parallel.register_comm_hook(None, hook)


def test_large_models_have_several_buckets(world):
    net = mica.nn.Sequential(*(mica.nn.Linear(300, 300) for _ in range(8)))
    parallel = mica.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)
    seen = []

    def hook(state, bucket):
        seen.append((bucket.index(), bucket.is_last()))
        future = mica.futures.Future()
        future.set_result(mica.zeros_like(bucket.buffer()))
        return future

    parallel.register_comm_hook(None, hook)
    parallel(mica.ones(1, 300)).sum().backward()
    assert len(seen) > 2 and seen == [(i, i == len(seen) - 1) for i in range(len(seen))]
    assert all(p.grad.eq(0).all() for p in net.parameters())


def test_what_is_no_communication_hook(world):
    parallel = mica.nn.parallel.DistributedDataParallel(mica.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="must be callable"):
        parallel.register_comm_hook(None, 3)

    def wrong(state, bucket: int):
        pass

    with pytest.raises(ValueError, match=r"bucket annotation should be dist\.GradBucket"):
        parallel.register_comm_hook(None, wrong)
    parallel.register_comm_hook(None, lambda state, bucket: 3)
    with pytest.raises(RuntimeError, match=r"should be a torch\.futures\.Future"):
        parallel(mica.ones(1, 2)).sum().backward()


def test_there_is_nothing_to_destroy():
    with pytest.raises(AssertionError, match="Process group cannot be None"):
        dist.destroy_process_group()
