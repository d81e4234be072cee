"""Graphs of functions for compilers of the program's own: torch.compile(backend=function).

A captured function runs as Python, on every call, but its calls of torch are recorded instead of computed: their results
are fake tensors, promises of values. Where a value is asked for, and at the end, what was recorded becomes an
fx.GraphModule. The backend is handed it, unless it has compiled the same graph for the same kinds of inputs before, and
what the backend returned computes the values, which the promises then become. So nothing about Python's state is guessed
and nothing has to be guarded: the graph of each call is compared with those that are known. docs/graphs.md has the rest.
"""

import weakref

import mica
from mica import _C, _logging
from mica._dynamo import _capture_breaks as _breaks
from mica._dynamo import _capture_names as _names
from mica._dynamo import _compiled_graphs, _promises
from mica._dynamo import _open_inputs as _open
from mica._dynamo import arrays as _arrays
from mica._dynamo._compiled_graphs import CompiledGraphs
from mica._dynamo._input_names import InputNames
from mica._dynamo._open_numbers import symbolic
from mica._dynamo._recorded_graph import RecordedGraph
from mica._dynamo.exc import (
    BackendCompilerFailed,
    TorchDynamoException,
    Unsupported,
    observed,
)
from mica._dynamo.utils import counters
from mica._functions.extremes import recorded_extremes
from mica._subclasses import fake_tensor as _fakes
from mica.amp.autocast_mode import _exit_autocast
from mica.compiler import _running, _stance
from mica.fx.graph_module import GraphModule
from mica.utils._pytree import tree_leaves, tree_map, tree_map_only

__all__ = ["Captured", "active"]
active = _names.active


class Captured:
    """A function whose graphs a backend compiles."""

    sizes_apart = False  # sizes of one value share a name

    def __init__(self, function, backend, fullgraph=False, dynamic=None, recompile_limit=None):
        self.function, self.fullgraph, self.dynamic = function, fullgraph, dynamic
        self.compiled, self._is_first = CompiledGraphs(function, backend, fullgraph, recompile_limit), True
        # Of inputs in earlier calls: their sizes; pairs of open sizes that differed; all sizes of calls without open ones.
        self.seen, self.apart, self.fixed = {}, set(), set()
        _known.add(self)

    def __call__(self, /, *args, **kwargs):
        from mica._dynamo import config

        if config.disable:
            return self.function(*args, **kwargs)
        if (
            active() is not None or _promises.is_exported() or _open.are_open((args, kwargs))
        ):  # it is part of another graph
            return _running.call(self.function, args, kwargs)
        args, kwargs = _arrays.as_captured((args, kwargs))
        capture = Capture(self, args, kwargs)
        if _stance.name in ("eager_then_compile", "aot_eager_then_compile") and self._is_first:
            self._is_first = False
            capture.note_sizes()
            return self.function(*args, **kwargs)
        args, kwargs = capture.open_numbers(args, kwargs)
        _names.set_active(capture)
        try:
            with _breaks.functions_break(capture), recorded_extremes, _running.Within(), capture:
                try:
                    result = self.function(*args, **kwargs)
                except Unsupported:
                    raise
                except Exception as error:
                    if capture.refused is not None:  # and the program has caught it
                        raise capture.refused from error
                    capture.flush("an exception", whole=False)
                    if not self.fullgraph or isinstance(error, TorchDynamoException):
                        raise
                    raise observed(error, _names.line_of(error), error is capture.failed) from error.__cause__
                except BaseException:
                    capture.flush("an exception", whole=False)
                    raise
                if capture.refused is not None:
                    raise capture.refused
                capture.end_with(result)
                result = _arrays.as_arrays(result)
            return result if capture.fakes.shape_env is None else _open.concrete(result)
        finally:
            _names.set_active(None)
            capture.end()


_names.set_entry(Captured.__call__)
_running.add_entry(Captured.__call__)
_known = weakref.WeakSet()


def forget():
    """Let every captured function forget what its backend has compiled."""
    _compiled_graphs.forget()
    for each in list(_known):
        each.compiled.clear()
        each.seen.clear()
        each.apart.clear()
        each.fixed.clear()


class Capture(RecordedGraph):
    """One call of a captured function."""

    def __init__(self, owner, args, kwargs):
        names = InputNames(owner.function, args, kwargs)
        super().__init__(owner, names, _fakes.FakeTensorMode(allow_non_fake_inputs=True))
        self.active, self._asked, self._parts = True, set(), 0
        self._pass = _C._current_graph_task_id()
        self.failed = None  # the exception of a call of torch
        self.refused = None  # the exception that says why there is not one graph
        self.fakes.before_values = self._before_values
        self.fakes.arrays = self._array_of_promise

    def end(self):
        self.active = False
        self.fakes.before_values = self.fakes.arrays = None
        self._open.note_call()
        self._open.end()

    def _before_values(self, name, tensor):
        self.flush(f"{name}() asks for values", _names.is_refused(name, tensor))

    def open_numbers(self, args, kwargs):
        """The arguments, with open numbers in the place of whole numbers that change from call to call."""
        return self._open.numbers(args, kwargs)

    def note_sizes(self):
        """Remember the sizes of the arguments of a call that is not captured."""
        for tensor, name in self._names.given():
            self._open.axes(tensor, name)

    # ---- calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        # The engine wants real tensors of the Python functions and hooks of a backward pass.
        if not self.active or _C._current_graph_task_id() != self._pass:
            return func(*args, **kwargs)
        kind = _names.kind_of(func, args)
        if kind == "plain":
            return self._looked(func, args, kwargs)
        if (array := self._array(func, args, kwargs)) is not None:
            return array
        if (holder := _names.holder_among(types, args, kwargs)) is not None:
            return self._of_class(holder, func, types, args, kwargs, args)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _C.TensorBase)]
        if any(tensor.is_nested for tensor in tensors):  # there are no fake ones
            return self._run_now(func, args, kwargs, f"{_names.name_of(func)}() of a nested tensor", whole=False)
        other = next((tensor for tensor in tensors if not self._is_plain(tensor)), None)
        if other is not None:
            return self._of_class(other, func, types, args, kwargs, tensors)
        if kind == "break":
            name, tensor = _names.name_of(func), tensors[0] if tensors else None
            reason = f"{name}() is kept out of graphs" if func in _names.disallowed else f"{name}() asks for values"
            return self._run_now(func, args, kwargs, reason, _names.is_refused(name, tensor))
        if self._modes is None:
            self._note_modes()
        casts, inference, (dtype, device) = _names.modes_now()
        first = self._modes[2][1]
        if device != first:
            kwargs = _names.placed(func, kwargs, device)
        if self._modes != (now := (casts, inference, (dtype, first))):
            if self._modes[1:] != now[1:]:
                another = "another mode (inference_mode)" if self._modes[1] != inference else "another default dtype"
                self.flush(another, whole=False)
                if self._modes is not None:  # there was nothing to run
                    self._begin()
                return self.__torch_function__(func, types, args, kwargs)
            self._cast_as(now)
        if kind == "random":
            self._note_random()
        if (factor := _names.tensor_factor(func, kwargs)) is not None:  # recorded in parts, as torch records it
            with self:
                return args[0].add_(mica.mul(args[1], args[2]).mul(factor))
        return self._recorded(func, args, kwargs, tensors)

    def _of_class(self, other, func, types, args, kwargs, given):
        """A call with an object of a class that answers for it: the calls that the class makes are seen."""
        # The getter of an attribute is a new object each time, but of one descriptor.
        called = func.__self__ if getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__") else func
        asked = (id(called), tuple(map(id, given)))
        if asked in self._asked:  # the class has handed the call on unchanged
            self.flush(f"{_names.name_of(func)}() of a {type(other).__name__}", whole=False)
            return self.aside(func, args, kwargs)
        self._asked.add(asked)
        try:
            with self:
                return other.__torch_function__(func, types, args, kwargs)
        finally:
            self._asked.discard(asked)

    def _looked(self, func, args, kwargs):
        """The answer of a function that only looks at a tensor, such as its shape. Open sizes are open numbers in it."""
        sized = args and type(args[0]) is _C.Tensor and args[0].layout is mica.strided
        if sized and (name := _names.name_of(func)) in _names.SIZES:
            fake = self._fake(args[0])
            if "_sizes" in fake.__dict__:
                return getattr(fake, name) if name == "shape" else getattr(fake, name)(*args[1:], **kwargs)
        return func(*args, **kwargs)

    def _array(self, func, args, kwargs):
        """The captured form of x.numpy() and torch.tensor(array); None for other calls."""
        name, first = getattr(func, "__name__", ""), args[0] if args else None
        if name == "tensor" and _arrays.is_captured(first):
            others = {key: each for key, each in kwargs.items() if each is not None}
            leaf = others.pop("requires_grad", False)
            with self:
                made = first._captured_tensor().clone()
                made = made.to(**others) if others else made
                return made.requires_grad_() if leaf else made
        if name == "tensor" and isinstance(first, (list, tuple)) and any(map(_arrays.is_captured, tree_leaves(first))):
            return func(_arrays.as_arrays(first), *args[1:], **kwargs)
        if name != "numpy" or not isinstance(first, _C.TensorBase) or not self._is_plain(first):
            return None
        with self:
            return _arrays.array_of(first, kwargs.get("force", args[1] if len(args) > 1 else False))

    def _array_of_promise(self, tensor, force):
        return _arrays.array_of(tensor, force) if self.active else None

    def array_of(self, tensor):
        """The array of a tensor that the graph computes."""
        self.flush("NumPy asks for values", whole=False)
        return self.aside(tensor.numpy, (), {})

    @staticmethod
    def _is_plain(tensor):
        return type(tensor) in (_C.Tensor, mica.nn.Parameter, mica.nn.Buffer, _fakes.FakeTensor)

    def _run_now(self, func, args, kwargs, reason, whole=True):
        self.flush(reason, whole)
        try:
            return func(*args, **kwargs)
        except Exception as error:
            self.failed = error
            raise

    def draw(self):
        """Run the recorded calls if they draw random numbers, because the program asks for the state of a generator."""
        if self._random is not None:
            self.flush("the state of a random generator", whole=False)

    def uncaptured(self, function, args, kwargs, whole=True):
        """Call a function whose calls are not recorded."""
        self.flush(f"{getattr(function, '__name__', 'a function')} is not to be compiled", whole)
        return self.aside(function, args, kwargs)

    def aside(self, function, args, kwargs):
        """Call a function without recording it. The function reads no values that are still to be computed."""
        before, self.active = self.active, False
        try:
            return function(*args, **kwargs)
        finally:
            self.active = before

    def _recorded(self, func, args, kwargs, tensors):
        originals, inner_args, inner_kwargs = {}, (), {}

        def fake(tensor):
            if isinstance(tensor, _fakes.FakeTensor) and tensor.fake_mode is self.fakes:
                return tensor
            made = self._fake(tensor)
            originals[id(made)] = tensor
            return made

        try:
            inner_args, inner_kwargs = tree_map_only(_C.TensorBase, fake, (tuple(args), dict(kwargs)))
            if self.fakes.shape_env is not None:
                inner_args, inner_kwargs = tree_map(symbolic, (inner_args, inner_kwargs))
            # The calls inside a function of Mica's own ask nothing of the program.
            with _promises.no_modes():  # of the program's: they see the graph run
                out = self.aside(self._open.call, (func, inner_args, inner_kwargs), {})
        except Exception as error:
            if self._open.fix(error, (inner_args, inner_kwargs)):
                self._compute_again()
                return self._recorded(func, args, kwargs, tensors)
            # Real tensors may be able to do what fake ones cannot. An error of the real ones is the program's.
            name, of_data = (
                _names.name_of(func),
                (_fakes.DynamicOutputShapeException, _fakes.DataDependentOutputException),
            )
            # If a function of Mica's own asks for values inside, that is not the program's fault.
            within = "cannot be called on meta tensors" in str(error)
            whole = not isinstance(error, of_data) and not within and _names.is_refused(name)
            return self._run_now(func, args, kwargs, f"{name}(): {error or type(error).__name__}", whole)
        has_tensors = any(isinstance(leaf, _C.TensorBase) for leaf in tree_leaves(out))
        if not has_tensors and not (out is None and _names.changes_arguments(func, kwargs)):
            if out is None:
                return self._run_now(func, args, kwargs, f"{_names.name_of(func)}() returns no tensor")
            return out
        node = self._node(func, args, kwargs)
        return self._named(out, node, originals)

    def _compute_again(self):
        inputs = {
            node: (given, self._names.of(given))
            for given, _, node in self._inputs
            if not isinstance(given, _open.SizeInput)
        }
        with mica.set_grad_enabled(self._first_grad), _names.in_modes(self._first_modes):
            made = self._open.again(self.graph, inputs, self._living(), self._likeness)
            for _, entered in reversed(self._casts):
                for node in reversed(entered):
                    _exit_autocast(made[node])

    def _note_random(self):
        """Note the state of the generator before a recorded call that draws from it. The graph ends where that state is not the
        one that its earlier calls found."""
        state = _breaks.stream_state()
        if self._random is not None and not mica.equal(state, self._random):
            self.flush("a change of the random generator")
            self._note_modes()
        self._random = state

    # ---- graphs

    def end_with(self, result):
        """Run the recorded calls at the end of the function. As in torch, a function that calls nothing and returns one of its
        arguments is a graph too."""
        if not self.count and not self._parts and type(result) is _C.Tensor and self._names.is_given(result):
            self._note_modes()
            self._returned = [self._node_of(result)]
        self.flush(None)

    def _is_let_pass(self):
        """Whether a break here is no error, because torch does not look into the function that it is in."""
        return _running.is_opaque()

    def flush(self, reason, whole=True, twice=False):
        """Run the recorded calls. `reason` says why the graph ends here; None is the end of the function.
        `twice` says that the graph's gradients will be differentiated.

        With `whole`, a break is refused where the function has to be one graph. It is false for breaks that
        torch can go on with, and for exceptions of the program, before which changes in place have to be made.
        """
        if not self.active:
            return
        refuses = self.owner.fullgraph or _names.are_breaks_errors()
        if reason is not None and whole and refuses and not self._is_let_pass():
            self.active = False
            self.refused = Unsupported(
                f"{reason}\n\nfrom user code:\n{_names.user_line()}\ntorch.compile(fullgraph=True) asks for one graph"
            )
            raise self.refused
        if not self.count and not self._returned:
            return
        if reason is not None:
            counters["graph_break"][reason] += 1
            if _logging.is_on("graph_breaks"):
                _logging.write("graph_breaks", f"Graph break in user code at {_names.user_line()}\nReason: {reason}")
        self._open.check()
        for tensor, version, _ in self._inputs:
            if isinstance(tensor, _C.TensorBase) and _names.version_of(tensor) != version:
                raise Unsupported(
                    "a tensor that the graph reads was changed by a call that Mica's capture does not see; "
                    "torch.compiler.disable around that call ends the graph before it"
                )
        promises, returned = self._living(), self._returned
        self._restore_modes()
        self.graph.output((*(node for _, node in promises), *returned))
        with self._open.as_symbols():
            kinds = tuple(self._kind_of(each, node) for each, _, node in self._inputs)
        inputs, graph, modes, grad, random = (
            [each.value if isinstance(each, _open.SizeInput) else each for each, _, _ in self._inputs],
            self.graph,
            self._first_modes,
            self._first_grad,
            self._random,
        )
        count, part = self.count, self._parts
        self._parts += 1
        self.fakes.fake_tensor_converter = _fakes.FakeTensorConverter()
        self._begin()
        self._first_casts = None
        self.active = False
        try:
            counters["stats"]["calls_captured"] += count
            module = GraphModule(mica.nn.Module(), graph)
            code = graph.python_code("self")
            names = tuple(sorted((name, _names.told_apart(value)) for name, value in code.globals.items()))
            key = (code.src, names, modes, grad, kinds)
            state = None if random is None else _breaks.stream_state()
            with _names.in_modes(modes), mica.set_grad_enabled(grad), self._open.as_symbols():
                if random is not None:
                    _breaks.set_stream_state(random)
                # What a backend returns need not be differentiable twice, which a transform of torch.func may ask for.
                alone = _names.is_within_transform() or _C._are_functorch_transforms_active()
                compiled = module.forward if alone else self.owner.compiled.get(module, inputs, key, part, reason)
                if twice and getattr(compiled, "_differentiable_once", False):
                    compiled = module.forward
                outputs = compiled(*inputs)
                if random is not None and not mica.equal(state, random):
                    _breaks.set_stream_state(state)  # somebody has seeded the stream since
        finally:
            self.active = True
        outputs = [outputs] if isinstance(outputs, _C.TensorBase) else list(outputs or ())
        if len(outputs) != len(promises) + len(returned):
            raise BackendCompilerFailed(
                self.owner.compiled.backend,
                ValueError(f"the graph has {len(promises)} outputs, but {len(outputs)} were computed"),
            )
        self.aside(_promises.fulfil, ([made for made, _ in promises], outputs), {})
