"""Calls that are replayed as graphs of a GPU's work."""

import contextlib
import threading

import mica
from mica import _C
from mica._dynamo.replay.observe import Refused
from mica._dynamo.replay.structure import LARGE, CapturedCall, Given, Result, substituted

_LEAST_FUSED = 1  # in a graph a launch costs about a microsecond, however few elements it has
_place = _C._storage_address


class StaticGraphs:
    """What replays calls as graphs that read and write memory that stays where it is. A graph is captured by `capture`."""

    places = True  # whether a graph belongs to the addresses of the tensors that the function reads
    draws = False  # whether a replay may draw random numbers of the CPU

    @classmethod
    def captured(cls, call, kind, snapshot, arguments, args, kwargs):
        """The captured call, and what it returned."""
        tensors = arguments.tensors
        shares, state = [_place(each) for each in tensors], {_place(each) for each in snapshot.tensors}
        inputs, fixed, buffers = [], [], {}
        for i, each in enumerate(tensors):
            large = each.data_ptr() == kind.addresses[i] and each.nbytes >= LARGE
            if i in kind.changed_arguments or large or shares.count(shares[i]) > 1 or shares[i] in state:
                fixed.append((i, each.data_ptr()))
            else:
                buffer = mica.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device)
                buffer.copy_(each)
                inputs.append((i, buffer))
                buffers[id(each)] = buffer.requires_grad_(each.requires_grad)
        given = Given.of((buffers.get(id(each), each) for each in tensors), arguments.objects)
        inner_args, inner_kwargs = substituted(args, buffers), substituted(kwargs, buffers)
        try:
            replay, value = cls.capture(lambda: call(*inner_args, **inner_kwargs))
        except Exception as error:
            first = str(error).partition("\n")[0] or type(error).__name__
            raise Refused(f"it cannot be captured: {first}") from error
        result = _GraphResult(value, given, snapshot.known, {*state, *(shares[i] for i, _ in fixed)})
        if result.shares_with(buffer for _, buffer in inputs):
            raise Refused("a result is a part of an argument")
        if (difference := snapshot.difference()) is not None:
            raise Refused(difference)
        graph = _Graph(snapshot, replay, result, inputs, fixed, kind)
        with cls.in_turn():
            return graph, graph.replay(arguments)


class CudaGraphs(StaticGraphs):
    """Graphs of a GPU's work. All of them share their memory, one after the other: results are copied out at once."""

    _pools, _streams, _side, _lock = {}, {}, {}, threading.RLock()

    @staticmethod
    def takes(device):
        return device.type == "cuda" and device.index == mica.cuda.current_device()

    @staticmethod
    def is_busy():
        """Whether the program itself captures the current stream."""
        return mica.cuda.is_current_stream_capturing()

    @classmethod
    def in_turn(cls):
        """One thread at a time, and one stream after the other."""
        return _Turn(cls._lock, cls._streams)

    @classmethod
    def capture(cls, run):
        """A function that queues again the work that `run` queues, and the value that `run` returned."""
        device = mica.cuda.current_device()
        pool = cls._pools.setdefault(device, mica.cuda.graph_pool_handle())
        graph, side = mica.cuda.CUDAGraph(), cls._side.setdefault(device, mica.cuda.Stream())
        before = _C._set_least_fused_elements(_LEAST_FUSED)
        side.wait_stream(mica.cuda.current_stream())
        try:
            with mica.cuda.stream(side):
                graph.capture_begin(pool, "thread_local")
                try:
                    value = run()
                except BaseException:
                    with contextlib.suppress(Exception):  # the first error says why
                        graph.capture_end()
                    raise
                graph.capture_end()
        finally:
            _C._set_least_fused_elements(before)
        return graph.replay, value


class _Turn:
    """While it is entered, it is this thread's turn, and its stream has waited for that of the turn before."""

    __slots__ = ("_lock", "_streams")

    def __init__(self, lock, streams):
        self._lock, self._streams = lock, streams

    def __enter__(self):
        self._lock.acquire()
        try:
            now, device = mica.cuda.current_stream(), mica.cuda.current_device()
            last = self._streams.get(device)
            if last is not None and last != now:
                now.wait_stream(last)
            self._streams[device] = now
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *error):
        self._lock.release()


class _GraphResult(Result):
    """What a captured call returned. A replay copies it out of the graph's memory."""

    def __init__(self, value, given, known, lasting):
        """`lasting`: addresses of storages that are no part of the graph."""
        self._lasting, self._copied, self._shown = lasting, [], []
        super().__init__(value, given, known)
        self.tensors = [*self._copied, *self._shown]
        places = [t.untyped_storage().data_ptr() for t in self._copied if t.numel()]
        if len(set(places)) != len(places):
            raise Refused("results that share memory")

    def _take(self, tensor):
        super()._take(tensor)
        (self._shown if tensor.untyped_storage().data_ptr() in self._lasting else self._copied).append(tensor)

    def shares_with(self, tensors):
        """Whether a result is a view of one of these."""
        places = {each.untyped_storage().data_ptr() for each in tensors if each.numel()}
        return any(each.numel() and each.untyped_storage().data_ptr() in places for each in self._copied)

    def made(self, arguments):
        """The result of a replay for these arguments."""
        copies = [each.clone() for each in self._copied] + [each.view_as(each) for each in self._shown]
        return self.with_tensors(copies, arguments)


class _Graph(CapturedCall):
    """A captured call. It is for arguments of one kind, some of them at fixed addresses, and for one state of the program."""

    def __init__(self, snapshot, replay, result, inputs, fixed, kind):
        self.snapshot, self._replay, self._result = snapshot, replay, result
        self._inputs, self._fixed = inputs, fixed
        # What it changes: tensors of the state, numbers of arguments.
        self._changed, self._changed_arguments = kind.changed, kind.changed_arguments
        self._places = None

    def holds(self, tensors):
        """Whether the call would do the same again: fixed arguments lie where they lay, nothing that was read is another,
        and no argument that is copied is a part of what changes.
        """
        for i, address in self._fixed:
            if tensors[i].data_ptr() != address:
                return False
        if not self.snapshot.holds():
            return False
        places = self._places
        if places is None:  # places of the state's tensors, which stay while the snapshot holds
            places = self._places = {_place(each) for each in self._changed}
        if self._changed_arguments:
            places = places.union(_place(tensors[i]) for i in self._changed_arguments)
        if places:
            for i, _ in self._inputs:
                if _place(tensors[i]) in places:
                    return False
        return True

    def replay(self, arguments):
        for i, buffer in self._inputs:
            buffer.copy_(arguments.tensors[i])
        self._replay()
        _C._count_changes(self._changed)
        for i in self._changed_arguments:
            _C._count_change(arguments.tensors[i])
        return self._result.made(arguments)
