"""The backend on NCCL in a world of one: every call goes through the library, and gives what one process gives."""

import datetime

import mica as torch
import pytest
from mica.cuda import nccl
from mica.distributed import HashStore, ReduceOp

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.skipif(nccl._library() is None, reason="NCCL is not installed"),
]


@pytest.fixture(scope="module")
def backend():
    from mica.distributed.nccl import NcclBackend

    made = NcclBackend(HashStore(), 0, 1, datetime.timedelta(seconds=60), "cuda:0")
    yield made
    made.shutdown()


def options(kind, **values):
    from mica.distributed import options as all_options

    made = getattr(all_options, kind)()
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8,
                                   torch.bool, torch.complex64])  # fmt: skip
@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX"])
def test_reductions_of_one_change_nothing(backend, dtype, op):
    x = torch.arange(12, device="cuda").reshape(3, 4).to(dtype)
    for tensor in (x.clone(), x.clone().t(), x.clone()[:, ::2], x.clone()[:0]):
        expected = tensor.clone()
        backend.allreduce([tensor], options("AllreduceOptions", reduceOp=getattr(ReduceOp, op))).wait()
        assert torch.equal(tensor, expected)


def test_factors_and_refusals(backend):
    x = torch.ones(5, device="cuda")
    backend.allreduce([x], options("AllreduceOptions", reduceOp=ReduceOp.PREMUL_SUM(3.0))).wait()
    assert x.tolist() == [3.0] * 5
    for op in ("BAND", "BOR", "BXOR"):
        with pytest.raises(ValueError, match=f"Cannot use ReduceOp.{op} with NCCL"):
            backend.allreduce([x], options("AllreduceOptions", reduceOp=getattr(ReduceOp, op)))
    with pytest.raises(ValueError, match="must be CUDA and dense"):
        backend.allreduce([torch.ones(3)])
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        backend.allreduce([x.to(torch.float8_e4m3fn)])


def test_what_is_moved(backend):
    x = torch.randn(4, 3, device="cuda")
    out = torch.empty(4, 3, device="cuda")
    backend._allgather_base(out, x).wait()
    assert torch.equal(out, x)
    outs = [torch.empty(3, 4, device="cuda").t()]
    backend.allgather([outs], [x]).wait()
    assert torch.equal(outs[0], x)
    for call in (backend._reduce_scatter_base, lambda o, i: backend.reduce_scatter([o], [[i]])):
        out = torch.empty(4, 3, device="cuda")
        call(out, x).wait()
        assert torch.equal(out, x)
    for dtype in (torch.float8_e4m3fn, torch.bool, torch.complex128):
        y = x.to(dtype)
        out = torch.zeros_like(y)
        backend.alltoall([out], [y]).wait()
        assert torch.equal(out.view(torch.uint8), y.view(torch.uint8))
    out = torch.zeros(4, 3, device="cuda")
    backend.alltoall_base(out, x, [], []).wait()
    assert torch.equal(out, x)
    out = torch.zeros(3, 4, device="cuda").t()
    backend.gather([[out]], [x]).wait()
    assert torch.equal(out, x)
    out = torch.zeros(3, 4, device="cuda").t()
    backend.scatter([out], [[x]]).wait()
    assert torch.equal(out, x)
    y = x.t()
    backend.broadcast([y]).wait()
    assert torch.equal(y, x.t())
    backend.barrier()


def test_a_collective_waits_for_the_stream_and_the_stream_for_it(backend):
    x = torch.zeros(1 << 22, device="cuda")
    for _ in range(50):
        x += 1
        work = backend.allreduce([x], options("AllreduceOptions", reduceOp=ReduceOp.PREMUL_SUM(1.0)))
        work.wait()
    assert x.eq(50).all().item() and work.is_completed() and work.get_future().wait()[0] is x
