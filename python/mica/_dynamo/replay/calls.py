"""Calls of one compiled function: counted, observed, captured, replayed."""

import contextlib
import threading
import weakref

import mica
from mica import _C
from mica._C import _functorch
from mica._dynamo.replay.likeness import Proven
from mica._dynamo.replay.observe import Observation, Refused
from mica._dynamo.replay.state import Snapshot
from mica._dynamo.replay.structure import Arguments, Given, Result, substituted
from mica._dynamo.utils import counters

_CALLS_BEFORE = 2  # calls that run plainly first, so that libraries choose their kernels
_MOST_KINDS, _MOST_GRAPHS = 64, 8
_MOST_PROVEN = 4  # how many kinds of arguments are known by those of an earlier call
_MOST_KEPT = 4  # how many kinds may keep an argument alive, of those that differ only in such objects
_LARGE = 1 << 20  # bytes: an argument of this size is not copied while its address stays the same
_LEAST_FUSED = 1  # in a graph a launch costs about a microsecond, however few elements it has
_within = threading.local()


def _settings():
    """The settings of the thread and the process on which every operation depends."""
    return (
        mica.is_grad_enabled(),
        mica.is_inference_mode_enabled(),
        mica.is_autocast_enabled("cuda") and (mica.get_autocast_dtype("cuda"), mica.is_autocast_cache_enabled()),
        mica.is_autocast_enabled("cpu") and mica.get_autocast_dtype("cpu"),
        mica.get_default_dtype(),
        mica.are_deterministic_algorithms_enabled(),
        mica.cuda.current_device() if mica.cuda.is_initialized() else 0,
    )


def _is_watched():
    """Whether a mode or a vmap sees each call of an operation: it would miss the calls of a replay."""
    return (
        _C._len_torch_function_stack() or _C._len_torch_dispatch_stack() or _functorch.maybe_current_level() is not None
    )


class CudaGraphs:
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


_place = _C._storage_address


class _Graph:
    """A captured call. It is for arguments of one kind, some of them at fixed addresses, and for one state of the program."""

    def __init__(self, snapshot, replay, result, inputs, fixed):
        self.snapshot, self._replay, self._result = snapshot, replay, result
        self._inputs, self._fixed = inputs, fixed
        self.changed, self.changed_arguments = [], ()  # tensors of the state, numbers of arguments
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
            places = self._places = {_place(each) for each in self.changed}
        if self.changed_arguments:
            places = places.union(_place(tensors[i]) for i in self.changed_arguments)
        if places:
            for i, _ in self._inputs:
                if _place(tensors[i]) in places:
                    return False
        return True

    def forget_with(self, references, graphs):
        """Leave a list of graphs when an object that was read through a weak reference has gone."""

        def leave(_):
            if self in graphs:
                graphs.remove(self)

        self._watched = [weakref.ref(target, leave) for each in references if (target := each()) is not None]

    def replay(self, arguments):
        for i, buffer in self._inputs:
            buffer.copy_(arguments.tensors[i])
        self._replay()
        _C._count_changes(self.changed)
        for i in self.changed_arguments:
            _C._count_change(arguments.tensors[i])
        return self._result.made(arguments)


class _Kind:
    """Calls with arguments of one kind."""

    def __init__(self):
        self.calls, self.graphs, self.reason = 0, [], None
        # Arguments that are not tensors, whose ids are part of the key; not kept alive where possible.
        self.objects = []
        self.is_busy = False  # whether a call is being observed, checked or captured
        self.observation, self.likeness = None, None
        self.snapshot = None  # the snapshot of the last call that was checked
        # Tensors of its arguments, and what it changed.
        self.addresses, self.changed, self.changed_arguments = (), (), ()


_known = weakref.WeakSet()


def forget():
    """Let every replayed function forget its graphs."""
    for each in list(_known):
        each.forget()


class Replayed:
    """A compiled function whose calls are replayed where that is known to be right."""

    def __init__(self, function, call, graphs=CudaGraphs):
        self.function, self.call, self._graphs = function, call, graphs
        self._kinds = {}
        self._observation = None  # the observation of the last call that was captured
        self._base = None  # what the function reads whatever its arguments are, from the last snapshot
        self._proven = {}  # what captured calls have shown of arguments like theirs, by the key without the objects' ids
        self.reasons = {}  # why calls were not replayed, and how often each reason was found
        _known.add(self)

    def __str__(self):
        graphs = sum(len(kind.graphs) for kind in self._kinds.values())
        said = f"replay: {graphs} graphs for arguments of {len(self._kinds)} kinds"
        return "; not replayed: ".join([said, *self.reasons])

    def forget(self):
        self._kinds.clear()
        self._observation = self._base = None
        self._proven.clear()
        self.reasons.clear()

    def __call__(self, *args, **kwargs):
        if getattr(_within, "depth", 0) or _is_watched():
            return self.call(*args, **kwargs)
        try:
            arguments = Arguments(args, kwargs)
        except Refused as refused:
            self._note(str(refused))
            return self.call(*args, **kwargs)
        tensors = arguments.tensors
        key = (arguments.key, _settings())
        kind = self._kinds.get(key)  # the key says on which devices the tensors are, and which one is current
        if kind is None and not (tensors and all(self._graphs.takes(each.device) for each in tensors)):
            return self.call(*args, **kwargs)
        if self._graphs.is_busy():
            return self.call(*args, **kwargs)
        with self._graphs.in_turn():  # no code of the program runs under this lock
            kind = kind or self._kind(key, arguments)
            for graph in kind.graphs if kind else ():
                if graph.holds(tensors):
                    counters["replay"]["replayed"] += 1
                    return graph.replay(arguments)
            runs = kind is None or kind.reason is not None or kind.is_busy
            if not runs:
                kind.is_busy = True
        if runs:
            return self.call(*args, **kwargs)
        _within.depth = 1
        try:
            return self._run(kind, arguments, args, kwargs, (arguments.likeness, key[1]))
        except Refused as refused:
            kind.reason = str(refused)
            self._note(kind.reason)
        finally:
            _within.depth, kind.is_busy = 0, False
        return self.call(*args, **kwargs)

    def _note(self, reason):
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def _kind(self, key, arguments):
        kind = self._kinds.get(key)
        if kind is None:
            self._let_go(arguments)
            if len(self._kinds) >= _MOST_KINDS:
                self._note("arguments of too many kinds")
                return None
            kind = self._kinds[key] = _Kind()
            kind.likeness = arguments.likeness if arguments.objects else None
            for each in arguments.objects:
                try:
                    kind.objects.append(weakref.ref(each, lambda _, kinds=self._kinds: kinds.pop(key, None)))
                except TypeError:
                    kind.objects.append(each)  # kept alive, so that no other object gets its id
        return kind

    def _let_go(self, arguments):
        """Forget graphs that keep other objects than these alive, if there are many."""
        if not arguments.objects:
            return
        likeness = arguments.likeness
        kept = [
            key
            for key, kind in self._kinds.items()
            if kind.likeness == likeness and any(graph.snapshot.reaches_roots for graph in kind.graphs)
        ]
        for key in kept[: max(0, len(kept) - _MOST_KEPT + 1)]:
            del self._kinds[key]

    # ---- before there is a graph

    def _run(self, kind, arguments, args, kwargs, alike):
        """Take the next step of a function: some plain calls, one that is observed, one that is checked, then the
        capture. `alike` is the key of all arguments like these.
        """
        kind.calls += 1
        if kind.observation is None and self._observation is not None:
            # The arguments are of another kind; the functions that run are compared below. This call is checked, and
            # libraries choose their kernels in it.
            kind.observation, kind.calls = self._observation, _CALLS_BEFORE
            self._take_over(kind, arguments, self._proven.get(alike))
        elif kind.calls <= _CALLS_BEFORE:
            return self.call(*args, **kwargs)
        if kind.observation is None:
            observation = Observation()
            result = observation.run(self.call, args, kwargs)
            self._refuse(kind, observation.reason)
            kind.observation = observation
            return result
        if kind.snapshot is None:
            return self._checked(kind, arguments, args, kwargs)
        if len(kind.graphs) >= _MOST_GRAPHS:
            raise Refused(f"what it reads has changed {_MOST_GRAPHS} times")
        return self._captured(kind, arguments, args, kwargs, alike)

    def _take_over(self, kind, arguments, proven):
        """Spare a kind the call that is checked, where a captured call has shown what it would show."""
        if proven is None or any(each.nbytes >= _LARGE for each in arguments.tensors):
            return
        snapshot = Snapshot(kind.observation, self.function, arguments.objects, self._base)
        self._base = snapshot.base
        changed = proven.changed_by(arguments, snapshot, kind.observation)
        if changed is not None:
            kind.snapshot, kind.addresses = snapshot, [each.data_ptr() for each in arguments.tensors]
            kind.changed, kind.changed_arguments = changed, proven.changed_arguments

    def _refuse(self, kind, reason):
        if reason is not None:
            kind.reason = reason
            self._note(reason)

    def _checked(self, kind, arguments, args, kwargs):
        """A call before and after which everything that it can read is compared."""
        tensors = arguments.tensors
        snapshot = Snapshot(kind.observation, self.function, arguments.objects, self._base)
        self._base = snapshot.base
        state = list(snapshot.tensors)
        before = [_C._change_count(each) for each in (*state, *tensors)]
        draws = mica.get_rng_state()
        observation = Observation()
        result = observation.run(self.call, args, kwargs)
        after = [_C._change_count(each) for each in (*state, *tensors)]
        reason = observation.reason or snapshot.difference()
        if reason is None and not mica.equal(draws, mica.get_rng_state()):
            reason = "it draws random numbers on the CPU"
        self._refuse(kind, reason)
        if observation.codes.keys() != kind.observation.codes.keys():
            kind.observation = observation  # other functions ran: the next call looks at what they read
            return result
        changed = [a != b for a, b in zip(before, after, strict=True)]
        kind.snapshot, kind.addresses = snapshot, [each.data_ptr() for each in tensors]
        kind.changed = [each for each, is_changed in zip(state, changed, strict=False) if is_changed]
        kind.changed_arguments = {i for i, is_changed in enumerate(changed[len(state) :]) if is_changed}
        return result

    def _captured(self, kind, arguments, args, kwargs, alike):
        tensors = arguments.tensors
        snapshot, kind.snapshot = kind.snapshot, None  # another graph of this kind needs another check
        if not snapshot.holds():
            return self._checked(kind, arguments, args, kwargs)
        shares, state = [_place(each) for each in tensors], {_place(each) for each in snapshot.tensors}
        inputs, fixed, buffers = [], [], {}
        for i, each in enumerate(tensors):
            large = each.data_ptr() == kind.addresses[i] and each.nbytes >= _LARGE
            if i in kind.changed_arguments or large or shares.count(shares[i]) > 1 or shares[i] in state:
                fixed.append((i, each.data_ptr()))
            else:
                buffer = mica.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=each.device)
                buffer.copy_(each)
                inputs.append((i, buffer))
                buffers[id(each)] = buffer.requires_grad_(each.requires_grad)
        given = {id(buffers.get(id(each), each)): Given(True, i) for i, each in enumerate(tensors)}
        given.update((id(each), Given(False, i)) for i, each in enumerate(arguments.objects))
        inner_args, inner_kwargs = substituted(args, buffers), substituted(kwargs, buffers)
        try:
            replay, value = self._graphs.capture(lambda: self.call(*inner_args, **inner_kwargs))
        except Exception as error:
            first = str(error).partition("\n")[0] or type(error).__name__
            raise Refused(f"it cannot be captured: {first}") from error
        result = Result(value, given, snapshot.known, {*state, *(shares[i] for i, _ in fixed)})
        if result.shares_with(buffer for _, buffer in inputs):
            raise Refused("a result is a part of an argument")
        if (difference := snapshot.difference()) is not None:
            raise Refused(difference)
        graph = _Graph(snapshot, replay, result, inputs, fixed)
        graph.changed, graph.changed_arguments = kind.changed, kind.changed_arguments
        kind.graphs.append(graph)
        graph.forget_with(snapshot.weakly_read, kind.graphs)
        self._observation = kind.observation
        self._keep_proof(alike, Proven(kind, arguments, snapshot))
        counters["replay"]["captured"] += 1
        with self._graphs.in_turn():
            return graph.replay(arguments)

    def _keep_proof(self, alike, proven):
        self._proven.pop(alike, None)
        if not proven.usable:
            return
        if len(self._proven) >= _MOST_PROVEN:
            del self._proven[next(iter(self._proven))]
        self._proven[alike] = proven
