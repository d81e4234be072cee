"""Tensors on a GPU that go to another process: the memory is shared, and kept until the other has let go."""

import time

import mica as torch
import mica.multiprocessing as mp
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


def test_another_process_writes_into_our_memory():
    # The child imports what it runs by name, from a folder that is on its path.
    from gpu_sharing_child import double
    from mica.multiprocessing import _device_sharing

    context = mp.get_context("spawn")  # CUDA does not survive a fork
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=double, args=(queue, answers), daemon=True)
    process.start()
    x = torch.arange(1000.0, device="cuda")
    queue.put(x[10:20])
    deadline = time.monotonic() + 60
    while answers.empty() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.is_alive(), f"the child ended with {process.exitcode}"
    assert answers.get(timeout=1) == 2 * sum(range(10, 20))
    assert x[10:20].tolist() == [2.0 * i for i in range(10, 20)] and x[20].item() == 20
    torch.cuda.ipc_collect()
    assert len(_device_sharing._sent) == 1
    queue.put(None)
    process.join(60)
    assert process.exitcode == 0
    torch.cuda.ipc_collect()
    assert not _device_sharing._sent


def test_sparse_and_parameters():
    ours, theirs = mp.Pipe()
    with pytest.raises(RuntimeError, match="Cannot pickle CUDA storage"):
        ours.send(torch.ones(2, device="cuda").untyped_storage())
    ours.send(torch.empty(0, 3, device="cuda"))
    assert theirs.recv().shape == (0, 3)
