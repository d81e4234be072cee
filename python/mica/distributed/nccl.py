"""The backend on NCCL: collectives of CUDA tensors, on a stream of their own.

A collective waits on the device for what the current stream has queued, and returns; `wait` makes the current stream wait
for the collective, and blocks the program only in `barrier`.
"""

import ctypes

import mica
from mica.cuda import nccl as table
from mica.distributed._errors import DistBackendError
from mica.distributed._nccl_group import NcclGroup, several
from mica.distributed.options import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)  # fmt: skip


class NcclBackend(NcclGroup):
    """The collectives of one group. Options and methods have the names of torch's backends."""

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return "nccl"

    getBackendName = name

    def set_timeout(self, timeout):
        self._timeout = timeout

    _set_default_timeout = set_timeout

    # ---- collectives

    def allreduce(self, tensors, opts=None):
        opts = opts or AllreduceOptions()
        tensors = [tensors] if isinstance(tensors, mica.Tensor) else tensors
        works = []
        for tensor in tensors:
            self._check([tensor])
            flat = self._flat(tensor.detach())
            back = None if flat.data_ptr() == tensor.data_ptr() else (lambda t=tensor, f=flat: t.detach().copy_(f))
            works.append(self._reduced("ncclAllReduce", flat, flat, "source", opts.reduceOp, tensors, finish=back))
        return works[0] if len(works) == 1 else several(works, tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts=None):
        opts, (tensor,) = opts or ReduceOptions(), tensors
        self._check([tensor])
        flat = self._flat(tensor.detach())
        same = flat.data_ptr() == tensor.data_ptr()
        back = None if same or opts.rootRank != self._rank else (lambda: tensor.detach().copy_(flat))
        target = flat if opts.rootRank == self._rank else mica.empty_like(flat)
        return self._reduced(
            "ncclReduce", flat, target, "source", opts.reduceOp, tensors, root=opts.rootRank, finish=back
        )

    def broadcast(self, tensors, opts=None):
        opts, (tensor,) = opts or BroadcastOptions(), tensors
        self._check([tensor])
        flat = self._flat(tensor.detach())
        back = None if flat.data_ptr() == tensor.data_ptr() else (lambda: tensor.detach().copy_(flat))

        def calls(communicator, stream):
            address, count, kind = self._bytes(flat)
            table._call(
                "ncclBroadcast", address, address, count, kind, ctypes.c_int(opts.rootRank), communicator, stream
            )

        return self._run([flat], calls, tensors, back)

    def _allgather_base(self, output, input, opts=None):
        self._check([output, input])
        if output.dtype is not input.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if output.numel() != input.numel() * self._size:
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
        given, taken = self._flat(input.detach()), self._flat(output.detach())
        back = None if taken.data_ptr() == output.data_ptr() else (lambda: output.detach().copy_(taken))

        def calls(communicator, stream):
            both = table._address(given), table._address(taken)
            table._call("ncclAllGather", *both, *self._bytes(given)[1:], communicator, stream)

        return self._run([given, taken], calls, [output], back)

    all_gather_single = _allgather_base

    def allgather(self, output_tensors, input_tensors, opts=None):
        (outputs,), (tensor,) = output_tensors, input_tensors
        if len(outputs) != self._size:
            raise ValueError(f"Tensor list must have {self._size} tensors, one for each rank, but got {len(outputs)}")
        self._check([*outputs, tensor])
        if any(out.numel() != tensor.numel() for out in outputs):  # parts of different sizes are messages
            return self.alltoall(outputs, [tensor] * self._size, opts)
        whole = mica.empty(self._size, tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        work = self._allgather_base(whole, tensor, opts or AllgatherOptions())
        work._result = outputs
        work._then = lambda: [
            out.detach().copy_(part.view(out.shape)) for out, part in zip(outputs, whole, strict=True)
        ]
        return work

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        return several([self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs, strict=True)], outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _reduce_scatter_base(self, output, input, opts=None):
        opts = opts or ReduceScatterOptions()
        self._check([output, input])
        if output.numel() * self._size != input.numel():
            raise ValueError("input tensor must be the same size as output size times world size")
        if output.dtype is not input.dtype:
            raise TypeError("input tensor must be the same type as the output tensor.")
        given, taken = self._flat(input.detach()), self._flat(output.detach())
        back = None if taken.data_ptr() == output.data_ptr() else (lambda: output.detach().copy_(taken))
        return self._reduced("ncclReduceScatter", given, taken, "target", opts.reduceOp, [output], finish=back)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        (output,), (inputs,) = output_tensors, input_tensors
        if len(inputs) != self._size or any(tensor.numel() != output.numel() for tensor in inputs):
            raise ValueError(f"reduce_scatter takes {self._size} tensors of the size of the output")
        whole = mica.cat([tensor.detach().reshape(-1) for tensor in inputs])
        work = self._reduce_scatter_base(output, whole, opts)
        work._result = output_tensors
        return work

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        return several([self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs, strict=True)], outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall(self, output_tensors, input_tensors, opts=None):
        for name, tensors in (("output", output_tensors), ("input", input_tensors)):
            if len(tensors) != self._size:
                raise RuntimeError(f"alltoall: expected {self._size} {name} tensors, but got {len(tensors)}")
        sends = [(self._flat(tensor.detach()), rank) for rank, tensor in enumerate(input_tensors)]
        taken = [self._flat(tensor.detach()) for tensor in output_tensors]

        def back():
            for out, flat in zip(output_tensors, taken, strict=True):
                if flat.data_ptr() != out.data_ptr():
                    out.detach().copy_(flat)

        return self._messages(sends, [(t, rank) for rank, t in enumerate(taken)], output_tensors, back)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        given, taken = self._parts(self._flat(input), input_splits), self._parts(output, output_splits)
        work = self.alltoall(taken, given, opts or AllToAllOptions())
        work._result = [output]
        return work

    def _parts(self, tensor, splits):
        length = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if length % self._size:
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            splits = [length // self._size] * self._size
        if len(splits) != self._size:
            raise RuntimeError("Number of tensor splits not equal to group size")
        if sum(splits) != length:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        return tensor.detach().split(list(splits))

    def gather(self, output_tensors, input_tensors, opts=None):
        opts, (tensor,) = opts or GatherOptions(), input_tensors
        flat, outputs = self._flat(tensor.detach()), []
        if opts.rootRank == self._rank:
            (outputs,) = output_tensors
            if len(outputs) != self._size:
                raise ValueError(f"gather: Incorrect output list size {len(outputs)}, should be {self._size}")
        taken = [self._flat(out.detach()) for out in outputs]

        def back():
            for out, part in zip(outputs, taken, strict=True):
                if part.data_ptr() != out.data_ptr():
                    out.detach().copy_(part)

        return self._messages([(flat, opts.rootRank)], [(t, rank) for rank, t in enumerate(taken)], outputs, back)

    def scatter(self, output_tensors, input_tensors, opts=None):
        opts, (output,) = opts or ScatterOptions(), output_tensors
        sends = []
        if opts.rootRank == self._rank:
            (inputs,) = input_tensors
            if len(inputs) != self._size:
                raise ValueError(f"scatter: Incorrect input list size {len(inputs)}, should be {self._size}")
            sends = [(self._flat(tensor.detach()), rank) for rank, tensor in enumerate(inputs)]
        flat = self._flat(output.detach())
        back = None if flat.data_ptr() == output.data_ptr() else (lambda: output.detach().copy_(flat))
        return self._messages(sends, [(flat, opts.rootRank)], output_tensors, back)

    def barrier(self, opts=None):
        opts = opts or BarrierOptions()
        device = getattr(opts, "device", None) or mica.device(
            "cuda", next(iter(self._communicators), mica.cuda.current_device())
        )
        flag = mica.zeros(1, device=device)
        work = self.allreduce([flag])
        work.wait()
        mica.cuda.current_stream(flag.device).synchronize()
        return work

    # ---- messages

    def _check_peer(self, peer):
        if not 0 <= peer < self._size or peer == self._rank:
            raise DistBackendError(f"rank {self._rank} of {self._size} cannot exchange messages with rank {peer}")

    def send(self, tensors, dst, tag=0):
        (tensor,) = tensors
        self._check_peer(dst)
        return self._messages([(self._flat(tensor.detach()), dst)], [], tensors)

    def recv(self, tensors, src, tag=0):
        (tensor,) = tensors
        self._check_peer(src)
        flat = self._flat(tensor.detach())
        back = None if flat.data_ptr() == tensor.data_ptr() else (lambda: tensor.detach().copy_(flat))
        work = self._messages([], [(flat, src)], tensors, back)
        work._source = src
        return work

    def recv_anysource(self, tensors, tag=0):
        raise RuntimeError("recv from any source is not supported by NCCL: name the rank")
