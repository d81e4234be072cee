"""The backend on Mica's own engine: tensors become addresses, sizes and dtypes for mica._distributed."""

import math
import sys

import mica
from mica.distributed.buffers import _Buffers, _is_plain, _memory
from mica.distributed.lateness import end_answers, seconds_of
from mica.distributed.options import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)  # fmt: skip
from mica.distributed.work import All, Received, Work

# The numbers follow the engine's lists (distributed/call.h, mica/dtype.h).
(ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER, SEND, RECV) = range(
    11
)
_DTYPES = {
    getattr(mica, name): code
    for code, name in enumerate(
        [
            "uint8",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
            "complex32",
            "complex64",
            "complex128",
            "bool",
            "bfloat16",
            "float8_e5m2",
            "float8_e4m3fn",
            "float8_e5m2fnuz",
            "float8_e4m3fnuz",
            "float8_e8m0fnu",
            "uint16",
            "uint32",
            "uint64",
        ]
    )
}
_ANY_SOURCE = -1


def _watchers():
    """The recorders of inspect.collectives() that are active."""
    module = sys.modules.get("mica.inspect._collectives")
    return module.watchers if module is not None else ()


class NativeBackend:
    """The collectives of one group. Options and methods have the names of torch's backends."""

    def __init__(self, engine, rank, size, timeout, name="gloo", group="", world_ranks=(), desk=None):
        self._engine, self._rank, self._size, self._timeout, self._name = engine, rank, size, timeout, name
        self._group, self._world_ranks = group, list(world_ranks)
        self._desk = engine if desk is None else desk  # the engine that says where this program is
        self._late_limit = seconds_of("MICA_DISTRIBUTED_LATE_LIMIT", math.inf)
        engine.set_timeout(self._limit(None))
        self._pending = []  # calls that were started; their tensors must live until they are done
        for each in _watchers():
            each.begin(self)

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return self._name

    getBackendName = name
    supports_splitting = supports_coalescing = supports_time_estimate = False

    def set_timeout(self, timeout):
        self._timeout = timeout
        self._engine.set_timeout(self._limit(None))

    def plain_all_reduce(self):
        """A function that reduces a plain tensor at once: True, or False where the tensor is not for it."""
        return self._engine.all_reduce

    _set_default_timeout = set_timeout

    def abort(self, why="the process group was aborted"):
        self._engine.abort(why)

    def shutdown(self):
        for each in _watchers():
            each.end(self)
        self._engine.close()
        end_answers(self._desk)

    # ---- one way to the engine

    def _limit(self, timeout):
        timeout = self._timeout if timeout is None or timeout.total_seconds() <= 0 else timeout
        return min(timeout.total_seconds(), self._late_limit)

    def _run(self, kind, opts, inputs, outputs, buffers, result, *, root=0, tag=0, like=None, make=Work):
        like = like if like is not None else (inputs or outputs or (None,))[0]
        dtype = 0 if like is None else _DTYPES.get(like.dtype, 0)
        if buffers is not None and buffers.queued:
            buffers.ready()
        op = getattr(opts, "reduceOp", ReduceOp.SUM)
        factor = 1.0
        if op == ReduceOp.PREMUL_SUM and kind in (ALL_REDUCE, REDUCE, REDUCE_SCATTER):
            op, factor, inputs = self._premultiply(op, inputs, buffers)
        if self._pending:
            self._pending = [work for work in self._pending if not work.is_completed()]
        later = getattr(opts, "asyncOp", True)
        handle = self._engine.run(
            kind, dtype, int(op), factor, root, tag, self._limit(getattr(opts, "timeout", None)), _memory(inputs),
            _memory(outputs), None if like is None else like.shape, later,
        )  # fmt: skip
        if not later and handle is None:
            if buffers is not None and buffers.back:
                buffers.finish()
            return None
        finish = buffers.finish if buffers is not None and buffers.back else None
        work = make(result, handle, finish, self, (inputs, outputs, buffers))
        if handle is not None:
            self._pending.append(work)
        return work

    def _premultiply(self, op, inputs, buffers):
        """A factor that is a tensor is multiplied here; a number by the engine."""
        factor = op.factor if isinstance(op, ReduceOp) else None
        if factor is None:
            raise RuntimeError("ReduceOp.PREMUL_SUM needs a factor: torch.distributed.ReduceOp.PREMUL_SUM(factor)")
        if not isinstance(factor, mica.Tensor):
            return ReduceOp.PREMUL_SUM, float(factor), inputs
        scaled = [each.detach() * factor.to(each.dtype) for each in inputs]
        buffers.kept.extend(scaled)
        return ReduceOp.SUM, 1.0, scaled

    def _check_root(self, name, root):
        if not 0 <= root < self._size:
            raise RuntimeError(f"ProcessGroupGloo::{name}: invalid root rank: {root}")

    def _check_alike(self, name, tensors, like):
        for index, each in enumerate(tensors):
            if each.dtype != like.dtype:
                raise RuntimeError(
                    f"ProcessGroupGloo::{name}: invalid tensor type at index {index} (expected {like.dtype}, got {each.dtype})"
                )
            if each.numel() != like.numel():
                raise RuntimeError(
                    f"ProcessGroupGloo::{name}: invalid tensor size at index {index} (expected {tuple(like.shape)}, got {tuple(each.shape)})"
                )

    # ---- collectives

    def allreduce(self, tensors, opts=None):
        opts = opts or AllreduceOptions()
        tensors = [tensors] if isinstance(tensors, mica.Tensor) else tensors
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts)
        tensor = tensors[0]
        buffers = None
        if not _is_plain(tensor) or opts.reduceOp == ReduceOp.PREMUL_SUM:
            buffers = _Buffers()
            tensor = buffers.write(tensor, fill=True)
        return self._run(ALL_REDUCE, opts, (tensor,), (tensor,), buffers, tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts or AllreduceOptions()
        works = [self.allreduce([each], opts) for each in tensors]
        return works[-1] if works and works[-1] is None else All(works, tensors)

    def reduce(self, tensors, opts=None):
        opts, (tensor,) = opts or ReduceOptions(), tensors
        self._check_root("reduce", opts.rootRank)
        buffers = _Buffers()
        if opts.rootRank == self._rank:
            plain = buffers.write(tensor, fill=True)
            return self._run(REDUCE, opts, (plain,), (plain,), buffers, tensors, root=opts.rootRank)
        return self._run(REDUCE, opts, (buffers.read(tensor),), (), buffers, tensors, root=opts.rootRank)

    def broadcast(self, tensors, opts=None):
        opts, (tensor,) = opts or BroadcastOptions(), tensors
        self._check_root("broadcast", opts.rootRank)
        buffers = _Buffers()
        plain = buffers.read(tensor) if opts.rootRank == self._rank else buffers.write(tensor)
        return self._run(BROADCAST, opts, (plain,), (plain,), buffers, tensors, root=opts.rootRank)

    def allgather(self, output_tensors, input_tensors, opts=None):
        opts = opts or AllgatherOptions()
        if len(output_tensors) != 1 or len(input_tensors) != 1:
            raise RuntimeError("ProcessGroupGloo::allgather: requires a single-element input tensor list")
        outputs, tensor = output_tensors[0], input_tensors[0]
        if len(outputs) != self._size:
            raise RuntimeError(
                f"ProcessGroupGloo::allgather: invalid output tensor list at index 0 (expected length {self._size}, got {len(outputs)})"
            )
        for each in outputs:
            if each.dtype != tensor.dtype:
                self._check_alike("allgather", outputs, tensor)
        if outputs[self._rank].numel() != tensor.numel():
            self._check_alike("allgather", outputs, tensor)
        buffers = _Buffers()
        given, taken = buffers.read(tensor), [buffers.write(each) for each in outputs]
        return self._run(ALL_GATHER, opts, (given,), taken, buffers, outputs)

    def _allgather_base(self, output, input, opts=None):
        opts = opts or AllgatherOptions()
        self._check_alike("allgather", output.reshape(-1).tensor_split(self._size), input)
        if output.numel() != input.numel() * self._size:
            raise RuntimeError("output tensor size must be equal to world_size times input tensor size")
        buffers = _Buffers()
        given, whole = buffers.read(input), buffers.write(output)
        parts = whole.detach().view(-1).split(input.numel()) if input.numel() else [whole] * self._size
        return self._run(ALL_GATHER, opts, (given,), parts, buffers, [output])

    all_gather_single = _allgather_base

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        works = [
            self.allgather([outputs], [each], opts) for outputs, each in zip(output_lists, input_list, strict=True)
        ]
        return All(works, output_lists)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        works = [self._allgather_base(out, each, opts) for out, each in zip(outputs, inputs, strict=True)]
        return All(works, outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, output_tensors, input_tensors, opts=None):
        opts, (tensor,) = opts or GatherOptions(), input_tensors
        self._check_root("gather", opts.rootRank)
        buffers, taken, result = _Buffers(), (), []
        if opts.rootRank == self._rank:
            (outputs,) = output_tensors
            if len(outputs) != self._size:
                raise RuntimeError(
                    f"ProcessGroupGloo::gather: Incorrect output list size {len(outputs)}. Output list size should be {self._size}, same as size of the process group."
                )
            self._check_alike("gather", outputs, tensor)
            taken, result = [buffers.write(each) for each in outputs], outputs
        elif output_tensors:
            raise RuntimeError("ProcessGroupGloo::gather: requires empty output on non-root")
        return self._run(GATHER, opts, (buffers.read(tensor),), taken, buffers, result, root=opts.rootRank)

    def scatter(self, output_tensors, input_tensors, opts=None):
        opts, (tensor,) = opts or ScatterOptions(), output_tensors
        self._check_root("scatter", opts.rootRank)
        buffers, given = _Buffers(), ()
        if opts.rootRank == self._rank:
            (inputs,) = input_tensors
            if len(inputs) != self._size:
                raise RuntimeError(
                    f"ProcessGroupGloo::scatter: Incorrect input list size {len(inputs)}. Input list size should be {self._size}, same as size of the process group."
                )
            self._check_alike("scatter", inputs, tensor)
            given = [buffers.read(each) for each in inputs]
        elif input_tensors:
            raise RuntimeError("ProcessGroupGloo::scatter: requires empty input on non-root")
        out = buffers.write(tensor)
        return self._run(SCATTER, opts, given, (out,), buffers, output_tensors, root=opts.rootRank, like=tensor)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        opts, (output,), (inputs,) = opts or ReduceScatterOptions(), output_tensors, input_tensors
        if len(inputs) != self._size:
            raise RuntimeError(
                f"ProcessGroupGloo::reduce_scatter: invalid input list (expected length {self._size}, got {len(inputs)})"
            )
        self._check_alike("reduce_scatter", [inputs[self._rank]], output)
        buffers = _Buffers()
        given, out = [buffers.read(each) for each in inputs], buffers.write(output)
        return self._run(REDUCE_SCATTER, opts, given, (out,), buffers, output_tensors, like=output)

    def _reduce_scatter_base(self, output, input, opts=None):
        opts = opts or ReduceScatterOptions()
        if output.numel() * self._size != input.numel():
            raise RuntimeError("input tensor must be the same size as output size times world size")
        if output.dtype != input.dtype:
            raise RuntimeError("input tensor must be the same type as the output tensor.")
        buffers = _Buffers()
        whole, out = buffers.read(input), buffers.write(output)
        parts = whole.detach().view(-1).split(output.numel()) if output.numel() else [whole] * self._size
        return self._run(REDUCE_SCATTER, opts, parts, (out,), buffers, [output], like=output)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        works = [self._reduce_scatter_base(out, each, opts) for out, each in zip(outputs, inputs, strict=True)]
        return All(works, outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall(self, output_tensors, input_tensors, opts=None):
        opts = opts or AllToAllOptions()
        for name, tensors in (("output", output_tensors), ("input", input_tensors)):
            if len(tensors) != self._size:
                raise RuntimeError(f"alltoall: expected {self._size} {name} tensors, but got {len(tensors)}")
        buffers = _Buffers()
        given, taken = [buffers.read(each) for each in input_tensors], [buffers.write(each) for each in output_tensors]
        return self._run(ALL_TO_ALL, opts, given, taken, buffers, output_tensors)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        opts = opts or AllToAllOptions()
        buffers = _Buffers()
        whole, out = buffers.read(input), buffers.write(output)
        given, taken = self._parts(whole, input_splits), self._parts(out, output_splits)
        return self._run(ALL_TO_ALL, opts, given, taken, buffers, [output])

    def _parts(self, tensor, splits):
        length = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if length % self._size:
                raise RuntimeError(
                    f"Tensor's dim 0 does not divide equally across group size: {length} rows for {self._size} ranks"
                )
            splits = [length // self._size] * self._size
        if len(splits) != self._size:
            raise RuntimeError(
                f"Number of tensor splits not equal to group size: {len(splits)} splits for {self._size} ranks"
            )
        if sum(splits) != length:
            raise RuntimeError(
                f"Split sizes doesn't match total dim 0 size: {list(splits)} add up to {sum(splits)}, and the tensor has "
                f"{length} rows"
            )
        return tensor.detach().split(list(splits))

    def barrier(self, opts=None):
        return self._run(BARRIER, opts or BarrierOptions(), (), (), None, [])

    # ---- messages

    def _check_peer(self, name, peer):
        if not 0 <= peer < self._size:
            raise RuntimeError(f"ProcessGroupGloo::{name}: invalid rank {peer} in a group of {self._size}")
        if peer == self._rank:
            raise RuntimeError(f"ProcessGroupGloo::{name}: a rank cannot exchange messages with itself")

    def send(self, tensors, dst, tag=0):
        (tensor,) = tensors
        self._check_peer("send", dst)
        buffers = _Buffers()
        return self._run(SEND, _MessageOptions, (buffers.read(tensor),), (), buffers, tensors, root=dst, tag=tag)

    def recv(self, tensors, src, tag=0):
        self._check_peer("recv", src)
        return self._receive(tensors, src, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._receive(tensors, _ANY_SOURCE, tag)

    def _receive(self, tensors, src, tag):
        (tensor,) = tensors
        buffers = _Buffers()
        out = buffers.write(tensor)
        return self._run(RECV, _MessageOptions, (), (out,), buffers, tensors, root=src, tag=tag, make=Received)


class _MessageOptions:
    timeout, asyncOp = None, True
    reduceOp = ReduceOp.SUM
