"""Trading time for memory: what backward needs is computed again instead of kept."""

import contextlib
import threading
import warnings

from mica import _C
from mica.autograd.function import Function
from mica.autograd.grad_mode import enable_grad, no_grad
from mica.autograd.graph import saved_tensors_hooks
from mica.utils._checkpoint_surroundings import Surroundings
from mica.utils._traced_checkpoint import draws, traced_graph

__all__ = [
    "CheckpointError", "CheckpointPolicy", "GraphExecGroup", "SelectiveCheckpointContext", "check_backward_validity", "checkpoint",  # noqa: F822
    "checkpoint_sequential", "create_selective_checkpoint_contexts", "detach_variable", "get_device_states",  # noqa: F822
    "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip


class CheckpointError(RuntimeError):
    """Raised when the second run of a checkpointed function does not save the same tensors as the first."""


_TIP = (
    "Tip: pass `debug=True` to `torch.utils.checkpoint.checkpoint(...)`, or call it within `with "
    "torch.utils.checkpoint.set_checkpoint_debug_enabled(True):`, to see the operators of both runs."
)


class _EnoughRecomputed(Exception):
    """All tensors that were kept in the first run have come again."""


def check_backward_validity(inputs):
    """Warn where none of the inputs requires a gradient."""
    if not any(each.requires_grad for each in inputs if isinstance(each, _C.Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def detach_variable(inputs):
    """The inputs as leaves of their own, which require gradients where the inputs do."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(map(_detached, inputs))


def get_device_states(*args):
    """The devices of tensors that are not on the CPU, and the states of their random streams."""
    from mica import cuda

    devices = sorted({each.get_device() for each in args if isinstance(each, _C.Tensor) and each.is_cuda})
    return devices, [cuda.get_rng_state(device) for device in devices]


def set_device_states(devices, states, *, device_type=None):
    """Set the random streams of devices as `get_device_states` has found them."""
    from mica import cuda

    if device_type not in (None, "cuda", "meta"):
        raise NotImplementedError(
            f"set_device_states: there are random streams of CUDA's devices, not of {device_type!r}"
        )
    if device_type == "meta":
        return
    for device, state in zip(devices, states, strict=True):
        cuda.set_rng_state(state, device)


def noop_context_fn():
    """Contexts for the first and the second run that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


_debug = None  # what checkpoint() was told


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Whether errors of calls made here list the operators of both runs, whatever `debug` they are given. None: as given."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


class GraphExecGroup:
    """Backward passes within a `with` block of one group run a checkpointed function again once for all of them.

    No two of the passes may need the same saved tensor, also where they retain the graph.
    """

    _current = threading.local()

    def __enter__(self):
        if self._get_current_group() is not None:
            raise RuntimeError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {self._get_current_group()}"
            )
        self._current.group = self
        return self

    def __exit__(self, *exception):
        self._current.group = None

    @classmethod
    def _get_current_group(cls):
        return getattr(cls._current, "group", None)


_early_stop = None  # what checkpoint() was told


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Whether the second runs of calls made here stop as soon as they have made the last tensor that is needed."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


# ---- without reentrance: saved tensors are placeholders


def _description(tensor):
    return tuple(tensor.shape), tensor.dtype, tensor.device


class _Recomputation:
    """One checkpointed call: what it would have kept, counted, and how to make it again."""

    def __init__(self, run, context, determinism_check, early_stop):
        self.run = run
        self.context = context
        self.check = determinism_check
        self.early_stop = early_stop
        self.forward_ended = False
        self.descriptions = []
        self.kept = {}  # number -> tensor, for the running pass or group of passes
        self.task = None
        self.comparison = None  # under debug=True
        self.drawn = None  # what was to be kept while a graph is traced: a graph cannot draw the same numbers twice

    def pack(self, tensor):
        if self.drawn is not None:
            self.drawn.append(tensor.detach())
        self.descriptions.append(_description(tensor))
        return len(self.descriptions) - 1

    def unpack(self, number):
        if self.drawn is not None:
            return self.drawn[number]
        group = GraphExecGroup._get_current_group()
        task = group or _C._current_graph_task_id()
        known = task == self.task and task != -1  # outside of a pass each tensor is made anew
        if not known or (number not in self.kept and not self.forward_ended):
            self.recompute_or_explain()
            self.task = task
        elif number not in self.kept:
            overlap = (
                "Performing two backward calls that overlap (i.e. require the same saved activation in order to compute "
                "gradients) is not allowed while under the torch.utils.checkpoint.GraphExecGroup context. "
            )
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. "
                f"{overlap if group else ''}If you are calling ctx.saved_tensors in backward, make sure to do so only "
                "once. Otherwise please open an issue with details on your use case."
            )
        if task != -1:
            return self.kept.pop(number)
        kept, self.kept = self.kept, {}
        return kept[number]

    def recompute_or_explain(self):
        try:
            self.recompute()
        except CheckpointError as error:
            if self.comparison is None:
                raise
            raise CheckpointError(self.comparison.text()) from error

    def recompute(self):
        self.kept = {}
        count = 0
        expected = len(self.descriptions)
        # Gradients that are computed within the function need what it has kept so far; it keeps more afterwards.
        complete = self.forward_ended

        def pack_again(tensor):
            nonlocal count
            if count < expected:
                if self.check != "none" and _description(tensor) != self.descriptions[count]:
                    raise CheckpointError(
                        "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata "
                        f"than during the forward pass.\ntensor at position {count}:\nsaved metadata: "
                        f"{self.descriptions[count]}\nrecomputed metadata: {_description(tensor)}.\n{_TIP}"
                    )
                self.kept[count] = tensor.detach() if tensor.requires_grad else tensor
            elif complete and self.check != "none":
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original "
                    f"forward pass, which saved {expected}."
                )
            count += 1
            if self.early_stop and count == expected:
                raise _EnoughRecomputed
            return tensor.detach()  # a node that keeps its own output would never be freed

        keep = saved_tensors_hooks(pack_again, lambda tensor: tensor)
        with contextlib.suppress(_EnoughRecomputed), self.context, keep, enable_grad():
            self.run()
        if (count < expected or (count > expected and complete)) and self.check != "none":
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {expected}\n"
                f"Number of tensors saved during recomputation: {count}.\n{_TIP}"
            )


def _checkpoint_with_hooks(
    function, args, kwargs, preserve_rng_state, context_fn, determinism_check, early_stop, debug
):
    comparison = None
    if debug if _debug is None else _debug:
        if context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with non-default context_fn")
        from mica.utils._checkpoint_debug import Comparison

        comparison = Comparison()
        context_fn = comparison.contexts
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    forward_context, again_context = context_fn()
    surroundings = Surroundings(preserve_rng_state)

    def run():
        with surroundings.again():
            function(*args, **kwargs)

    recomputation = _Recomputation(run, again_context, determinism_check, early_stop)
    recomputation.comparison = comparison
    graph = traced_graph()
    if graph is not None:
        recomputation.drawn, first = [], len(graph.nodes)
    with saved_tensors_hooks(recomputation.pack, recomputation.unpack), forward_context:
        result = function(*args, **kwargs)
    recomputation.forward_ended = True
    if graph is not None and not draws(graph, first):
        recomputation.drawn = None
    return result


# ---- with reentrance: a node that runs forward and backward within backward


def _detached(argument):
    if not isinstance(argument, _C.Tensor):
        return argument
    return argument.detach().requires_grad_(argument.requires_grad)


class CheckpointFunction(Function):
    """Runs a function without recording, and again, recorded, in backward."""

    @staticmethod
    def forward(ctx, function, preserve_rng_state, *args):
        ctx.function = function
        ctx.surroundings = Surroundings(preserve_rng_state)
        ctx.places = [i for i, arg in enumerate(args) if isinstance(arg, _C.Tensor)]
        ctx.others = [None if isinstance(arg, _C.Tensor) else arg for arg in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if _C._current_graph_task_is_selective():  # the inner pass would give gradients to all leaves that it reaches
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). Set use_reentrant=False, or call .backward() without `inputs`."
            )
        args = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = _detached(tensor)
        with ctx.surroundings.again(), enable_grad():
            outputs = ctx.function(*args)
        outputs = (outputs,) if isinstance(outputs, _C.Tensor) else outputs
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if isinstance(output, _C.Tensor) and output.requires_grad
        ]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        _C._autograd_backward([output for output, _ in pairs], [grad for _, grad in pairs])
        return (None, None, *(arg.grad if isinstance(arg, _C.Tensor) else None for arg in args))


def _checkpoint_reentrant(function, args, preserve_rng_state):
    if not any(isinstance(arg, _C.Tensor) and arg.requires_grad for arg in args):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None",
            stacklevel=3,
        )
    return CheckpointFunction.apply(function, preserve_rng_state, *args)


def checkpoint(
    function,
    *args,
    use_reentrant=None,
    context_fn=noop_context_fn,
    determinism_check="default",
    debug=False,
    early_stop=True,
    **kwargs,
):
    """Compute function(*args, **kwargs) without keeping what is inside of it for backward, which runs it again.

    Args:
        function: what to compute
        use_reentrant: False, the better choice, lets the second run fill placeholders; True runs forward and backward of
            the function as one node
        context_fn: returns a context manager for each of the two runs
        determinism_check: "default" compares the tensors that both runs save, "none" does not
        debug: whether an error about different runs lists the operators of both
        early_stop: whether the second run stops at the last tensor that is needed
        preserve_rng_state: whether the second run draws the same random numbers

    The second run has autocast as the first had it.

    Example::

        y = checkpoint(block, x, use_reentrant=False)
    """
    preserve_rng_state = kwargs.pop("preserve_rng_state", True)
    if use_reentrant is None:
        use_reentrant = True
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
            "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but "
            "if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for "
            "more details on the differences between the two variants.",
            stacklevel=2,
        )
    if not use_reentrant:
        early_stop = early_stop if _early_stop is None else _early_stop
        return _checkpoint_with_hooks(
            function, args, kwargs, preserve_rng_state, context_fn, determinism_check, early_stop, debug
        )
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if context_fn is not noop_context_fn or debug is not False:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    return _checkpoint_reentrant(function, args, preserve_rng_state)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """A chain of functions in `segments` parts, all but the last of them checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. In "
            "version 2.9 we will raise an exception if use_reentrant is not passed. use_reentrant=False is recommended, "
            "but if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs "
            "for more details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(start, end):
        def part(value):
            for function in functions[start:end]:
                value = function(value)
            return value

        return part

    size = len(functions) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(run(start, end), input, use_reentrant=use_reentrant, **kwargs)
    return run(end, len(functions))(input)


def __getattr__(name):
    # Checkpoints by operators need torch.ops, which needs functions that use checkpoints.
    if name in ("CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"):
        from mica.utils import _selective_checkpoint

        return getattr(_selective_checkpoint, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
