"""Graphs: work that is recorded once and queued again as a whole."""

import gc
import itertools

import mica
from mica import _C
from mica.cuda.memory import pool_of
from mica.cuda.streams import Stream, _cuda_device, current_stream, stream

_names = itertools.count(1)
_MODES = ("global", "thread_local", "relaxed")


def graph_pool_handle():
    """A name for memory that graphs share: a graph may use again what one that was captured before it let go of."""
    return (0, next(_names))


def is_current_stream_capturing():
    """Whether what is queued now becomes part of a graph."""
    return _C._device_count("cuda") > 0 and _C._graph_is_capturing(_cuda_device())


class CUDAGraph:
    """Work of one GPU that was captured from a stream, to be queued again as a whole."""

    def __init__(self, keep_graph=False):
        if _C._device_count("cuda") == 0:
            raise RuntimeError(
                "Tried to instantiate dummy base class CUDAGraph: torch.cuda.CUDAGraph requires CUDA support"
            )
        if keep_graph:
            raise NotImplementedError(
                "CUDAGraph(keep_graph=True) is not in Mica: a graph is ready to run when its capture ends, and its "
                "nodes cannot be reached. Leave keep_graph out"
            )
        self._handle, self._ready, self._pool, self._memory = None, False, graph_pool_handle(), None

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Record what is queued on the current stream from now on, instead of running it.

        `pool` names the memory that the graph uses, and may share with others; the mode says for which threads a call
        that could spoil the capture is an error.
        """
        if self._handle is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph. Call reset() first.")
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        self._pool = self._pool if pool is None else tuple(pool)
        self._memory = pool_of(self._pool)  # kept as long as the graph
        self._handle = _C._graph_begin(_cuda_device(), capture_error_mode, int(self._memory._handle))

    def capture_end(self):
        """Stop recording; the graph can be replayed."""
        try:
            _C._graph_end(self._handle)
        except BaseException:
            self.reset()
            raise
        self._ready = True

    def replay(self):
        """Queue the recorded work on the current stream."""
        if not self._ready:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        _C._graph_replay(self._handle)

    def reset(self):
        """Forget the recorded work and give its memory back."""
        if self._handle is not None:
            _C._graph_free(self._handle)
        self._handle, self._ready, self._memory = None, False, None

    def pool(self):
        """The name of the graph's memory."""
        return self._pool

    def __del__(self):
        if getattr(self, "_handle", None) is not None and self._ready:
            self.reset()


class graph:
    """Capture a graph in a with block, on a stream of its own."""

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        self.cuda_graph, self._given, self._mode = cuda_graph, stream, capture_error_mode
        self.pool = () if pool is None else (pool,)

    def __enter__(self):
        mica.cuda.synchronize()
        gc.collect()
        mica.cuda.empty_cache()
        self.capture_stream = Stream() if self._given is None else self._given
        self.stream_ctx = stream(self.capture_stream)
        self.stream_ctx.__enter__()
        self.cuda_graph.capture_begin(*self.pool, capture_error_mode=self._mode)

    def __exit__(self, *exception):
        try:
            self.cuda_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(*exception)


def _flat(things):
    return [t for t in things if isinstance(t, _C.Tensor)]


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Versions of functions or modules whose forward and backward are graphs, for inputs like the samples."""
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    pool = graph_pool_handle() if pool is None else pool
    steps = [
        _graphed(c, a, num_warmup_iters, allow_unused_input, pool) for c, a in zip(callables, sample_args, strict=True)
    ]
    # The graphs share memory, so they are captured in the order in which they will run: forwards, then backwards.
    for order in (steps, steps, reversed(steps)):
        for step in order:
            next(step)
    made = tuple(next(step) for step in steps)
    return made[0] if single else made


def _graphed(function, args, warmups, allow_unused, pool):
    """Yields after the first runs, after each of the two captures, and then what calls them."""
    parameters = tuple(function.parameters()) if isinstance(function, mica.nn.Module) else ()
    inputs = tuple(_flat(args)) + parameters
    wanted = [t for t in inputs if t.requires_grad]

    def run():
        out = function(*args)
        return (out,) if isinstance(out, _C.Tensor) else tuple(out)

    def gradients(outputs, seeds):
        return mica.autograd.grad(
            [o for o in outputs if o.requires_grad], wanted, [s for s in seeds if s is not None],
            allow_unused=allow_unused,
        )  # fmt: skip

    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        for _ in range(warmups):
            outputs = run()
            if wanted:
                gradients(outputs, [mica.empty_like(o) if o.requires_grad else None for o in outputs])
    current_stream().wait_stream(side)
    yield
    forward, backward = CUDAGraph(), CUDAGraph()
    with graph(forward, pool):
        outputs = run()
    single = isinstance(function(*args), _C.Tensor) if not outputs else len(outputs) == 1
    seeds = [mica.empty_like(o) if o.requires_grad else None for o in outputs]
    yield
    found = ()
    if wanted:
        with graph(backward, pool):
            found = gradients(outputs, seeds)
    yield
    by_input, found = [], list(found)
    for t in inputs:
        by_input.append(found.pop(0) if t.requires_grad else None)

    class Graphed(mica.autograd.Function):
        @staticmethod
        def forward(ctx, *given):
            for static, new in zip(inputs[: len(given)], given, strict=True):
                if static.data_ptr() != new.data_ptr():
                    static.copy_(new)
            forward.replay()
            return tuple(o.detach() for o in outputs)

        @staticmethod
        def backward(ctx, *grads):
            for static, new in zip(seeds, grads, strict=True):
                if static is not None and new is not None:
                    static.copy_(new)
            backward.replay()
            return tuple(None if g is None else g.detach() for g in by_input)

    def graphed(*given):
        out = Graphed.apply(*_flat(given), *parameters)
        return out[0] if single else out

    if isinstance(function, mica.nn.Module):
        plain, training = function.forward, function.training
        function.forward = lambda *given: graphed(*given) if function.training == training else plain(*given)
        yield function
    else:
        yield graphed
