"""Tensors that processes share."""

import multiprocessing.pool
import os
import subprocess
import sys
import time

import mica
import mica.multiprocessing as mp
import pytest


def double(queue, answers):
    while (item := queue.get()) is not None:
        item *= 2
        answers.put(item)


def test_queues_share_memory():
    context = mp.get_context("fork")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=double, args=(queue, answers), daemon=True)
    process.start()
    x = mica.arange(10.0)
    queue.put(x)
    y = answers.get(timeout=60)
    assert y.tolist() == [2.0 * i for i in range(10)] and x.tolist() == y.tolist()  # the same memory
    assert x.is_shared() and y.is_shared()
    y[0] = 99
    assert x[0].item() == 99
    queue.put(None)
    process.join(20)
    assert process.exitcode == 0


def test_pipes_and_kinds():
    ours, theirs = mp.Pipe()
    base = mica.arange(6.0)
    parameter = mica.nn.Parameter(mica.ones(2))
    leaf = mica.ones(2, requires_grad=True)
    ours.send([base, base[2:4], parameter, leaf, mica.empty(0), mica.empty(2, device="meta"), base.untyped_storage()])
    a, b, p, q, empty, meta, storage = theirs.recv()
    a[2] = 7
    assert b.tolist() == [7, 3] and base[2].item() == 7
    assert isinstance(p, mica.nn.Parameter) and q.requires_grad and empty.shape == (0,) and meta.is_meta
    assert storage is a.untyped_storage()
    with pytest.raises(RuntimeError, match="Cowardly"):
        ours.send(leaf * 2)


def test_share_memory():
    x = mica.arange(4)
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared() and x[1:].is_shared()
    pid = os.fork()
    if pid == 0:
        x[0] = 41
        os._exit(0)
    os.waitpid(pid, 0)
    assert x.tolist() == [41, 1, 2, 3]


PROGRAM = """
import mica
import mica.multiprocessing as mp

def work(rank, x, fail):
    if fail and rank == 1:
        raise ValueError("rank one fails")
    x[rank] = rank + 1

if __name__ == "__main__":
    x = mica.zeros(2)
    x.share_memory_()
    mp.spawn(work, args=(x, False), nprocs=2)
    assert x.tolist() == [1, 2]
    try:
        mp.spawn(work, args=(x, True), nprocs=2)
    except mp.ProcessRaisedException as error:
        assert "rank one fails" in str(error) and error.error_index == 1
        print("fine")
"""


def test_spawn(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout == "fine\n", result.stderr


UNDER_MICA_RUN = """
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def work(rank, x):
    assert torch.__name__ == "torch" and torch.__version__.endswith(torch.version.mica)
    x[rank] = rank + 1

if __name__ == "__main__":
    x = torch.zeros(2).share_memory_()
    mp.spawn(work, args=(x,), nprocs=2)
    loader = DataLoader(TensorDataset(torch.arange(4)), num_workers=1, multiprocessing_context="spawn")
    print(x.tolist(), [batch[0].item() for batch in loader])
"""


def test_programs_under_mica_run_can_spawn(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(UNDER_MICA_RUN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "mica", "run", path]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout == "[1.0, 2.0] [0, 1, 2, 3]\n", result.stderr


def test_names():
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("telepathy")
    for name in ("Process", "Queue", "Pipe", "Pool", "Event", "Lock", "get_context", "set_start_method", "cpu_count"):
        assert hasattr(mp, name)


def echo(queue, answers):
    while (item := queue.get()) is not None:
        answers.put(item)


def test_sparse_and_nested_tensors():
    dense = mica.tensor([[0.0, 1.0, 0.0, 0.0], [2.0, 0.0, 0.0, 3.0]])
    sent = [
        dense.to_sparse(),
        dense.to_sparse().requires_grad_(),
        mica.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)),
        dense.to_sparse_csr(),
        dense.to_sparse_csc(),
        dense.to_sparse_bsr((1, 2)),
        dense.to_sparse_bsc((2, 2)),
    ]
    nested = mica.nested.nested_tensor([mica.arange(6.0).view(2, 3), mica.ones(1, 3)])
    context = mp.get_context("fork")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=echo, args=(queue, answers), daemon=True)
    process.start()
    for x in sent:
        queue.put(x)
        y = answers.get(timeout=60)
        assert y.layout is x.layout and y.shape == x.shape and y.requires_grad == x.requires_grad
        assert mica.equal(y.to_dense(), x.to_dense())
        if x.layout is mica.sparse_coo:
            assert y.is_coalesced() == x.is_coalesced()
    queue.put(nested)
    y = answers.get(timeout=60)
    assert y.is_nested and [each.tolist() for each in y.unbind()] == [each.tolist() for each in nested.unbind()]
    queue.put(None)
    process.join(20)
    assert process.exitcode == 0


def wait_until_sent(count):
    """A thread of multiprocessing closes its copy of the pipe when it comes to it."""
    from mica.multiprocessing import _device_sharing

    for _ in range(1000):
        _device_sharing.collect()
        if len(_device_sharing._sent) <= count:
            break
        time.sleep(0.01)
    assert len(_device_sharing._sent) == count


def test_memory_of_a_device_is_kept_until_all_have_let_go(monkeypatch):
    """The protocol around the backend's handles, with memory of this process in a device's place."""
    from mica.multiprocessing import _device_sharing

    released = []

    def query(device, what, argument):
        if what == "export_memory":
            return f"{int(argument) - 16:x} 16"
        if what == "import_memory":
            return str(int(argument, 16))
        released.append(argument)
        return ""

    monkeypatch.setattr(_device_sharing._C, "_backend_query", query)
    x = mica.arange(4.0)
    storage = x.untyped_storage()
    ours, theirs = mp.Pipe()
    ours.send(_device_sharing.share(storage))
    ours.send(_device_sharing.share(storage))
    _device_sharing.collect()
    assert len(_device_sharing._sent) == 2
    first = _device_sharing.receive(theirs.recv())
    assert _device_sharing.receive(theirs.recv()) is first  # the same memory is the same storage
    y = mica._C._view_storage(first, mica.float32, 0, (4,), (1,))
    y[0] = 7
    assert x[0].item() == 7
    wait_until_sent(1)
    del y, first
    assert len(released) == 1
    wait_until_sent(0)


def square(x):
    return x * x


def test_pools_and_queues_by_their_modules():
    from mica.multiprocessing.pool import Pool, clean_worker
    from mica.multiprocessing.queue import SimpleQueue

    with Pool(1, context=mp.get_context("fork")) as pool:
        assert pool.map(square, [mica.ones(2), mica.full((2,), 3.0)])[1].tolist() == [9.0, 9.0]
    worker = Pool.Process(mp.get_context("fork"), target=multiprocessing.pool.worker)
    assert worker._target is clean_worker
    queue = SimpleQueue(ctx=mp.get_context("fork"))
    x = mica.ones(3)
    queue.put(x)
    queue.get()[0] = 5
    assert x[0].item() == 5
