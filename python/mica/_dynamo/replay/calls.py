"""Calls of one compiled function: counted, observed, captured, replayed."""

import os
import sys
import threading
import weakref

import mica
from mica import _C
from mica._dynamo.replay.call_lists import CallLists
from mica._dynamo.replay.cuda_graphs import CudaGraphs
from mica._dynamo.replay.likeness import Proven
from mica._dynamo.replay.observe import Observation, Refused
from mica._dynamo.replay.state import Snapshot
from mica._dynamo.replay.structure import LARGE, Arguments, gives_back, requires_grad
from mica._dynamo.replay.thread_settings import settings
from mica._dynamo.utils import counters

WAYS = (CudaGraphs, CallLists)  # the first that takes the devices of all arguments

_CALLS_BEFORE = 2  # calls that run plainly first, so that libraries choose their kernels
_MOST_KINDS, _MOST_GRAPHS = 64, 8
_MOST_PROVEN = 4  # how many kinds of arguments are known by those of an earlier call
_MOST_KNOWN = 4  # how many calls C replays by itself
_MOST_KEPT = 4  # how many kinds may keep an argument alive, of those that differ only in such objects
_within = threading.local()


def _is_watched():
    """Whether a mode or a vmap sees each call of an operation: it would miss the calls of a replay."""
    return _C._len_torch_function_stack() or _C._len_torch_dispatch_stack() or _is_mapped()


def _is_mapped():
    """Whether a vmap runs on this thread. None does where their module has not been imported."""
    maps = sys.modules.get("mica.func._batched")
    active = getattr(maps, "active_levels", None)  # another thread may be importing it
    return active is not None and bool(active())


class _Kind:
    """Calls with arguments of one kind."""

    def __init__(self, way):
        self.way, self.calls, self.graphs, self.reason = way, 0, [], None
        self.captured = 0  # how many graphs there have been
        # Arguments that are not tensors, whose ids are part of the key; not kept alive where possible.
        self.objects = []
        self.turn = threading.Lock()  # of the call that is observed, checked or captured; others run as they are
        self.observation, self.likeness = None, None
        self.snapshot = None  # the snapshot of the last call that was checked
        # Tensors of its arguments, and what it changed.
        self.addresses, self.changed, self.changed_arguments = (), (), ()
        self.draws = False  # whether it drew random numbers of the CPU
        self.draws_on_gpus = False


_known = weakref.WeakSet()


def forget():
    """Let every replayed function forget its graphs."""
    for each in list(_known):
        each.forget()


class Replayed:
    """A compiled function whose calls are replayed where that is known to be right."""

    plain_calls_of_each_kind = 0
    most_records, most_graphs = 200_000, 8

    def __init__(self, function, call, ways=WAYS):
        self.function, self.call, self._ways = function, call, ways
        self._kinds = {}
        self._observation = None  # the observation of the last call that was captured
        self._base = None  # what the function reads whatever its arguments are, from the last snapshot
        self._proven = {}  # what captured calls have shown of arguments like theirs, by the key without the objects' ids
        self.reasons = {}  # why calls were not replayed, and how often each reason was found
        _known.add(self)

    def __str__(self):
        graphs = sum(len(kind.graphs) for kind in list(self._kinds.values()))
        said = f"replay: {graphs} graphs for arguments of {len(self._kinds)} kinds"
        return "; not replayed: ".join([said, *self.reasons])

    def forget(self):
        self._kinds.clear()
        self._observation = self._base = None
        self._proven.clear()
        self.reasons.clear()

    def __call__(self, /, *args, **kwargs):
        if getattr(_within, "depth", 0) or _is_watched():
            return self.call(*args, **kwargs)
        try:
            arguments = Arguments(args, kwargs)
        except Refused as refused:
            self._note(str(refused))
            return self._called(args, kwargs)
        key = (arguments.key, settings())
        kind = self._kinds.get(key)  # the key says on which devices the tensors are, and which one is current
        if kind is None:
            way = self._way_for(arguments.tensors)
            if way is None or way.is_busy() or (kind := self._kind(key, way, arguments)) is None:
                return self._called(args, kwargs)
        elif kind.way.is_busy():
            return self.call(*args, **kwargs)
        if kind.graphs:
            result = self._replay(kind, arguments)
            if result is not NotImplemented:
                return result
        if kind.reason is not None or not kind.turn.acquire(blocking=False):
            return self._called(args, kwargs)
        _within.depth = 1
        try:
            return self._run(kind, arguments, args, kwargs, (arguments.likeness, key[1]))
        except Refused as refused:
            kind.reason = str(refused)
            self._note(kind.reason)
        finally:
            _within.depth = 0
            kind.turn.release()
        return self._called(args, kwargs)

    def _called(self, args, kwargs):
        """The result of a call that is not replayed."""
        return self.call(*args, **kwargs)

    def _way_for(self, tensors):
        if not tensors:
            return None
        return next((way for way in self._ways if all(way.takes(each.device) for each in tensors)), None)

    def _replay(self, kind, arguments):
        """The result of a replay; NotImplemented where none is right."""
        with kind.way.in_turn():  # no code of the program runs under this lock
            for graph in tuple(kind.graphs):
                if graph.holds(arguments.tensors):
                    result = graph.replay(arguments)
                    if result is not NotImplemented:
                        counters["replay"]["replayed"] += 1
                    return result
        return NotImplemented

    def _note(self, reason):
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def _kind(self, key, way, arguments):
        self._let_go(arguments)
        if len(self._kinds) >= _MOST_KINDS:
            self._note("arguments of too many kinds")
            return None
        kind = self._kinds.setdefault(key, _Kind(way))
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
            for key, kind in list(self._kinds.items())
            if kind.likeness == likeness and any(graph.snapshot.reaches_roots for graph in kind.graphs)
        ]
        for key in kept[: max(0, len(kept) - _MOST_KEPT + 1)]:
            self._kinds.pop(key, None)

    # ---- before there is a graph

    def _run(self, kind, arguments, args, kwargs, alike):
        """Take the next step of a function: some plain calls, one that is observed, one that is checked, then the
        capture. `alike` is the key of all arguments like these.
        """
        kind.calls += 1
        if kind.calls <= self.plain_calls_of_each_kind:
            return self._called(args, kwargs)
        if kind.observation is None and self._observation is not None:
            # The arguments are of another kind; the functions that run are compared below. This call is checked, and
            # libraries choose their kernels in it.
            kind.observation = self._observation
            self._take_over(kind, arguments, self._proven.get(alike))
        elif kind.observation is None and kind.calls <= self.plain_calls_of_each_kind + _CALLS_BEFORE:
            return self._called(args, kwargs)
        if kind.observation is None:
            observation = Observation()
            result = observation.run(self.call, args, kwargs)
            self._refuse(kind, observation.reason or self._not_worthwhile(observation))
            kind.observation = observation
            return result
        if kind.snapshot is None:
            return self._checked(kind, arguments, args, kwargs)
        if kind.captured >= self.most_graphs:
            raise Refused(f"what it reads has changed {self.most_graphs} times")
        return self._captured(kind, arguments, args, kwargs, alike)

    def _not_worthwhile(self, observation):
        """Why a replay would gain nothing; None where it may."""
        return None

    def _snapshot(self, kind, arguments):
        snapshot = Snapshot(
            kind.observation,
            self.function,
            arguments.objects,
            self._base,
            places=kind.way.places,
            most=self.most_records,
        )
        self._base = snapshot.base
        return snapshot

    def _take_over(self, kind, arguments, proven):
        """Spare a kind the call that is checked, where a captured call has shown what it would show."""
        if proven is None or (kind.way.places and any(each.nbytes >= LARGE for each in arguments.tensors)):
            return
        snapshot = self._snapshot(kind, arguments)
        changed = proven.changed_by(arguments, snapshot, kind.observation)
        if changed is not None:
            kind.snapshot, kind.addresses = snapshot, [each.data_ptr() for each in arguments.tensors]
            kind.changed, kind.changed_arguments = changed, proven.changed_arguments
            kind.draws, kind.draws_on_gpus = proven.draws, proven.draws_on_gpus

    def _refuse(self, kind, reason):
        if reason is not None:
            kind.reason = reason
            self._note(reason)

    def _checked(self, kind, arguments, args, kwargs):
        """A call before and after which everything that it can read is compared."""
        tensors = arguments.tensors
        snapshot = self._snapshot(kind, arguments)
        state = list(snapshot.tensors)
        before = [_C._change_count(each) for each in (*state, *tensors)]
        draws, draws_on_gpus = mica.get_rng_state(), _states_on_gpus((*state, *tensors))
        observation = Observation()
        result = observation.run(self.call, args, kwargs)
        after = [_C._change_count(each) for each in (*state, *tensors)]
        reason = observation.reason or snapshot.difference() or arguments.change(args, kwargs)
        reason = reason or self._not_worthwhile(observation)
        if reason is None and gives_back(result, args, kwargs):
            reason = "a result is a list or a dict among its arguments"
        kind.draws = not mica.equal(draws, mica.get_rng_state())
        draws = zip(draws_on_gpus, _states_on_gpus((*state, *tensors)), strict=True)
        kind.draws_on_gpus = any(not mica.equal(*states) for states in draws)
        if reason is None and kind.draws and not kind.way.draws:
            reason = "it draws random numbers on the CPU"
        self._refuse(kind, reason)
        if observation.codes.keys() != kind.observation.codes.keys():
            kind.observation = observation  # other functions ran: the next call looks at what they read
            return result
        changed = [a != b for a, b in zip(before, after, strict=True)]
        kind.snapshot, kind.addresses = snapshot, [each.data_ptr() for each in tensors] if kind.way.places else ()
        kind.changed = [each for each, is_changed in zip(state, changed, strict=False) if is_changed]
        kind.changed_arguments = {i for i, is_changed in enumerate(changed[len(state) :]) if is_changed}
        return result

    def _captured(self, kind, arguments, args, kwargs, alike):
        snapshot, kind.snapshot = kind.snapshot, None  # another graph of this kind needs another check
        if not snapshot.holds():
            return self._checked(kind, arguments, args, kwargs)
        graph, value = kind.way.captured(self.call, kind, snapshot, arguments, args, kwargs)
        if isinstance(graph, Refused):
            self._refuse(kind, str(graph))
            return value
        kind.captured += 1
        self._keep(kind, graph)
        graph.forget_with(snapshot.weakly_read, kind.graphs)
        self._observation = kind.observation
        self._keep_proof(alike, Proven(kind, arguments, snapshot))
        counters["replay"]["captured"] += 1
        return value

    def _keep(self, kind, graph):
        kind.graphs.append(graph)

    def _keep_proof(self, alike, proven):
        self._proven.pop(alike, None)
        if not proven.usable:
            return
        if len(self._proven) >= _MOST_PROVEN:
            del self._proven[next(iter(self._proven))]
        self._proven[alike] = proven


def _states_on_gpus(tensors):
    """The states of the generators of the current GPU and of those where the tensors are."""
    if not mica.cuda.is_initialized():
        return []
    devices = {each.device.index for each in tensors if each.is_cuda} | {mica.cuda.current_device()}
    return [mica.cuda.get_rng_state(each) for each in sorted(devices)]


class LongLists(CallLists):
    """Lists that are worth the comparison before them."""

    fewest_calls = 3


class Unasked(Replayed):
    """A compiled function of which nobody asked that its calls be replayed.

    So it takes only what is known to gain, keeps no arguments alive, and gives up where nothing comes of it.
    """

    plain_calls_of_each_kind = 8
    most_records, most_graphs = 50_000, 8
    records_of_each_function = 500  # that a call may compare, for each function of Python that it spares
    fewest_functions = 4
    most_misses = 200  # calls in a row that were not replayed; some count for several
    _LOOK, _REFUSAL = 8, 50

    def __init__(self, compiled):
        function = compiled.__wrapped__
        super().__init__(function, _C._CompiledCall(function, compiled.fullgraph), (LongLists,))
        self._compiled, self._misses = weakref.ref(compiled), 0

    def forget(self):
        super().forget()
        compiled = self._compiled()
        if compiled is not None:
            compiled.known = None

    def __call__(self, /, *args, **kwargs):
        if _C._is_observed() or sys.getprofile() is not None or sys.gettrace() is not None:
            return self.call(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _called(self, args, kwargs):
        result = self.call(*args, **kwargs)
        self._miss(1)
        return result

    def _miss(self, count):
        self._misses += count
        compiled = self._compiled()
        if self._misses > self.most_misses and compiled is not None:
            wait = _waits[compiled] = 4 * _waits.get(compiled, 250)
            compiled.replayed, compiled.until_replay = None, wait

    def _refuse(self, kind, reason):
        super()._refuse(kind, reason)
        if reason is not None:
            self._miss(self._REFUSAL)

    def _replay(self, kind, arguments):
        result = super()._replay(kind, arguments)
        if result is not NotImplemented:
            self._misses = 0
        return result

    def _run(self, kind, arguments, args, kwargs, alike):
        if arguments.objects:
            raise Refused("objects are among its arguments")
        if kind.calls < self.plain_calls_of_each_kind:
            kind.calls += 1
            result = self._called(args, kwargs)
            if requires_grad(result):
                self._refuse(kind, "a result that requires grad")
            return result
        self._miss(self._LOOK)
        return super()._run(kind, arguments, args, kwargs, alike)

    def _not_worthwhile(self, observation):
        if observation.said is not None:
            return f"it calls {observation.said}"
        return "it calls few functions of Python" if observation.calls < self.fewest_functions else None

    def _snapshot(self, kind, arguments):
        snapshot = super()._snapshot(kind, arguments)
        if len(snapshot.records) > self.records_of_each_function * max(kind.observation.calls, 1):
            raise Refused("it can read much more than it calls")
        return snapshot

    def _keep(self, kind, graph):
        """Keep two graphs of a kind, so that old states of the program go."""
        del kind.graphs[:-1]
        super()._keep(kind, graph)
        compiled = self._compiled()
        if compiled is not None:
            kept = [each.known for one in list(self._kinds.values()) for each in one.graphs if each.known is not None]
            compiled.known = tuple(reversed(kept[-_MOST_KNOWN:])) or None


_waits = weakref.WeakKeyDictionary()  # how many calls there are before one that has given up tries again


def begin(compiled):
    """Take the calls of a compiled function over, to find out whether they can be replayed."""
    if os.environ.get("MICA_COMPILER_REPLAY") != "0":
        compiled.replayed = Unasked(compiled)
