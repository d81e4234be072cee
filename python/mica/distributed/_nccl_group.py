"""The communicators of a group on NCCL, and how calls of NCCL are queued on a stream of their own.

NCCL is opened when the first group needs it (mica.cuda.nccl). A communicator is made at the first collective, or at once
where the program names its device.
"""

import ctypes

import mica
from mica.cuda import nccl as table
from mica.distributed.options import ReduceOp
from mica.distributed.work import Work

_OPS = {ReduceOp.SUM: 0, ReduceOp.PRODUCT: 1, ReduceOp.MAX: 2, ReduceOp.MIN: 3, ReduceOp.AVG: 4}
_BYTES = 1  # NCCL's name for elements that are only moved


class NcclWork(Work):
    """A collective that is queued: done when an event after it is."""

    def __init__(self, result, event, device, keep, finish=None):
        super().__init__(result)
        self._event, self._device, self._kept, self._then = event, device, keep, finish

    def wait(self, timeout=None):
        """Makes the current stream wait; the program goes on."""
        stream = mica.cuda.current_stream(self._device)
        if self._event is not None:
            stream.wait_event(self._event)
        then, self._then = self._then, None
        if then is not None:
            then()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._event is None or self._event.query()

    def exception(self):
        return None

    def get_future(self):
        """A future of the results, as the current stream sees them."""
        self.wait()
        future = mica.futures.Future()
        future.set_result(self._result)
        return future


class NcclGroup:
    """A group's communicators, one for each device, and how a call of NCCL is queued on them."""

    def __init__(self, store, rank, size, timeout, device=None):
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._communicators = {}  # by the index of a device: (communicator, stream)
        if device is not None:
            self._communicator(mica.device(device))

    def _communicator(self, device):
        index = device.index if device.index is not None else mica.cuda.current_device()
        if index not in self._communicators:
            with mica.cuda.device(index):
                mica.cuda.init()
                key = f"nccl{len(self._communicators)}"
                if self._rank == 0:
                    self._store.set(key, table.unique_id())
                name = bytes(self._store.get(key))
                self._communicators[index] = table.init_rank(self._size, name, self._rank), mica.cuda.Stream(index)
        return self._communicators[index]

    def abort(self, why=None):
        """Ends what is under way, which then fails."""
        self._end("ncclCommAbort")

    def shutdown(self):
        self._end("ncclCommDestroy")

    def _end(self, function):
        for communicator, _ in self._communicators.values():
            table._call(function, communicator)
        self._communicators = {}

    # ---- one way to NCCL

    def _check(self, tensors):
        device = None
        for tensor in tensors:
            if not isinstance(tensor, mica.Tensor) or not tensor.is_cuda or tensor.layout is not mica.strided:
                raise ValueError("Tensors must be CUDA and dense")
            if device is not None and tensor.device != device:
                raise ValueError(f"Tensors must be on one device, but got {device} and {tensor.device}")
            device = tensor.device
        return device

    def _run(self, tensors, calls, result, finish=None, device=None):
        """Queues calls(communicator, stream) after the work that is queued on the current stream."""
        device = device or self._check(tensors)
        communicator, stream = self._communicator(device)
        with mica.cuda.device(device):
            stream.wait_stream(mica.cuda.current_stream())
            table._call("ncclGroupStart")
            try:
                calls(communicator, ctypes.c_void_p(stream.cuda_stream))
            finally:
                table._call("ncclGroupEnd")
            for tensor in tensors:
                tensor.record_stream(stream)
            event = mica.cuda.Event()
            event.record(stream)
        return NcclWork(result, event, device, tensors, finish)

    @staticmethod
    def _factor(op, tensor):
        """The factor of a PREMUL_SUM in the device's memory, where the current stream can still be waited for."""
        if op != ReduceOp.PREMUL_SUM:
            return None
        factor = op.factor if isinstance(op, ReduceOp) else None
        if factor is None:
            raise RuntimeError("ReduceOp.PREMUL_SUM needs a factor: torch.distributed.ReduceOp.PREMUL_SUM(factor)")
        return mica.as_tensor(factor, dtype=tensor.dtype, device=tensor.device)

    @staticmethod
    def _reduction(op, tensor, factor, communicator):
        """NCCL's number for a reduction, and the function that gives it back."""
        if factor is not None:
            made = ctypes.c_int()
            table._call(
                "ncclRedOpCreatePreMulSum", ctypes.byref(made), table._address(factor),
                ctypes.c_int(table._DTYPES[tensor.dtype]), ctypes.c_int(0), communicator,
            )  # fmt: skip
            return made, lambda: table._call("ncclRedOpDestroy", made, communicator)
        code = _OPS.get(ReduceOp.RedOpType(int(op)))
        if code is None:
            raise ValueError(f"Cannot use ReduceOp.{ReduceOp.RedOpType(int(op)).name} with NCCL")
        if tensor.dtype is mica.bool:  # a sum of bools is whether one is true
            if op == ReduceOp.AVG:
                raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
            code = {0: 2, 1: 3}.get(code, code)
        return ctypes.c_int(code), lambda: None

    @staticmethod
    def _flat(tensor):
        """Memory that NCCL can use: the tensor itself, or a copy."""
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    @staticmethod
    def _numbers(tensor):
        """The tensor as numbers that NCCL can add: complex ones are two each."""
        return mica.view_as_real(tensor) if tensor.is_complex() else tensor

    def _reduced(self, function, source, target, count_of, op, result, root=None, finish=None):
        source, target = self._numbers(source.detach()), self._numbers(target.detach())
        if source.dtype not in table._DTYPES:
            raise TypeError(f"Input tensor data type is not supported for NCCL process group: {source.dtype}")
        counted = target if count_of == "target" else source
        factor = self._factor(op, source)
        tensors = [source, target] if factor is None else [source, target, factor]

        def calls(communicator, stream):
            number, give_back = self._reduction(op, source, factor, communicator)
            rest = (number,) if root is None else (number, ctypes.c_int(root))
            both = table._address(source), table._address(target)
            table._call(function, *both, *table._count_and_dtype(counted), *rest, communicator, stream)
            give_back()

        return self._run(tensors, calls, result, finish)

    @staticmethod
    def _bytes(tensor):
        return table._address(tensor), ctypes.c_size_t(tensor.numel() * tensor.element_size()), ctypes.c_int(_BYTES)

    def _messages(self, sends, receives, result, finish=None):
        """Queues messages that travel at the same time. `sends` and `receives` are lists of (tensor, rank)."""

        def calls(communicator, stream):
            for function, pairs in (("ncclSend", sends), ("ncclRecv", receives)):
                for tensor, peer in pairs:
                    if tensor.numel():
                        table._call(function, *self._bytes(tensor), ctypes.c_int(peer), communicator, stream)

        tensors = [tensor.detach() for tensor, _ in [*sends, *receives]]
        return self._run(tensors, calls, result, finish)


def several(works, result):
    """Works that were queued one after the other, as one."""

    def finish():
        for work in works:
            work.wait()

    last = works[-1]
    return NcclWork(result, last._event, last._device, works, finish)
