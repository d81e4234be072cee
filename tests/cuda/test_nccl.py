"""Sums and copies between GPUs by NCCL; with one GPU, of one."""

import mica as torch
import pytest
from mica.cuda import nccl

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.skipif(nccl._library() is None, reason="NCCL is not installed"),
]


def one_on_each(*shape):
    return [torch.full(shape, i + 1.0, device=f"cuda:{i}") for i in range(torch.cuda.device_count())]


def test_collectives():
    n = torch.cuda.device_count()
    total = sum(range(1, n + 1))
    assert nccl.version() >= (2, 0, 0) and nccl.is_available(one_on_each(2))
    inputs = one_on_each(4)
    nccl.all_reduce(inputs)
    assert all(x.tolist() == [total] * 4 for x in inputs)
    inputs = one_on_each(4)
    nccl.reduce(inputs, root=0)
    assert inputs[0].tolist() == [total] * 4
    inputs = one_on_each(3)
    nccl.broadcast(inputs, root=n - 1)
    assert all(x.tolist() == [float(n)] * 3 for x in inputs)
    inputs, outputs = one_on_each(2), [torch.empty(2 * n, device=f"cuda:{i}") for i in range(n)]
    nccl.all_gather(inputs, outputs)
    assert all(x.tolist() == [i + 1.0 for i in range(n) for _ in range(2)] for x in outputs)
    inputs, outputs = one_on_each(3 * n), [torch.empty(3, device=f"cuda:{i}") for i in range(n)]
    nccl.reduce_scatter(inputs, outputs)
    assert all(x.tolist() == [total] * 3 for x in outputs)
