"""make_fx: the run of a function that a graph is made of, below autograd or above it."""

import contextlib
import functools
import inspect

import mica
from mica import _C
from mica._subclasses import open_sizes
from mica.export._record import Recorder
from mica.fx.experimental import _facts_of_data, _invented_numbers
from mica.fx.experimental._proxy_arguments import PytreeInputs, placeholder_names
from mica.fx.experimental._unseen_calls import UnseenCalls
from mica.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    disable_autocast_cache,
    disable_proxy_modes_tracing,
    extract_val,
    track_tensor_tree,
)
from mica.fx.graph_module import GraphModule
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["get_isolated_graphmodule", "make_fx"]


def make_fx(f, decomposition_table=None, tracing_mode="real", _allow_non_fake_inputs=False, *, pre_dispatch=False,
            record_module_stack=False, _allow_fake_constant=False, _error_on_data_dependent_ops=True,
            record_stack_traces=False, proxy_module_inputs=False, _disable_torch_fn_metadata_mode=False):  # fmt: skip
    """A function of arguments like f's that returns the graph of f for them, in aten's operators.

    They are those below autograd, or with `pre_dispatch` those that the function calls. Nodes do not say which modules
    and lines they come from: `record_module_stack` and `record_stack_traces` change nothing.
    """
    if proxy_module_inputs:
        raise NotImplementedError("make_fx(proxy_module_inputs=True): modules among the inputs are constants here")
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f'Expected tracing_mode to be one of "real", "fake", or "symbolic", got {tracing_mode}')
    if pre_dispatch and decomposition_table:
        raise NotImplementedError("make_fx(pre_dispatch=True) takes no decomposition_table here")
    kind = PreDispatchTrace if pre_dispatch else Trace

    @functools.wraps(f)
    def wrapped(*args):
        options = (decomposition_table, tracing_mode, _allow_non_fake_inputs, _error_on_data_dependent_ops)
        return kind(f, *options).run(args)

    return wrapped


def get_isolated_graphmodule(func, args, kwargs, tracing_mode="real", decomposition_table=None):
    """The graph of a call, in terms of all its arguments."""
    leaves, spec = tree_flatten((args, kwargs))

    def flat(values):
        inner_args, inner_kwargs = tree_unflatten(list(values), spec)
        return func(*inner_args, **inner_kwargs)

    with disable_proxy_modes_tracing():
        return make_fx(flat, decomposition_table, tracing_mode)(leaves)


def _codes(module):
    """The code of a graph, and of the graphs that it calls."""
    return [each.code for each in module.modules() if isinstance(each, GraphModule)]


def _without_marks(table):
    """A table without those entries that only say that a composite is taken apart: here it is, above what is recorded."""
    from mica.export._core import is_mark

    return {op: rule for op, rule in table.items() if not is_mark(rule)}


class FixedSizes:
    """Looks at the inputs of a graph for sizes that its trace has found to be the example's numbers. The graph would compute
    with these numbers, whatever the sizes are."""

    def __init__(self, places):
        self.places = places  # (number of the input, axis or None, the number)

    @classmethod
    def of(cls, leaves, presets):
        """For the inputs of a trace, and what it has found out by sizes of the example."""
        fixed = {size for size, found in presets.items() if type(size) is int and found == size and type(found) is int}
        places = [
            (i, axis, size)
            for i, leaf in enumerate(leaves)
            if not (isinstance(leaf, _C.TensorBase) and leaf.is_nested)
            for axis, size in (enumerate(leaf.shape) if isinstance(leaf, _C.TensorBase) else [(None, leaf)])
            if type(size) is int and size in fixed
        ]
        return cls(places)

    def __call__(self, module, args):
        leaves = tree_leaves(args)
        for i, axis, size in self.places:
            given = leaves[i] if i < len(leaves) else size
            given = given.shape[axis] if isinstance(given, _C.TensorBase) and axis is not None else given
            if type(given) is int and given != size:
                where = f"input {i}" if axis is None else f"size {axis} of input {i}"
                raise RuntimeError(
                    f"make_fx: the function needs {where} to be {size}, as in the example, but it is {given}"
                )


class Trace:
    """One call of what make_fx returns."""

    def __init__(self, function, table, tracing_mode, allow_real, refuse_values):
        self.function, self.table, self.tracing_mode = function, _without_marks(table or {}), tracing_mode
        self.allow_real, self.refuse_values = allow_real, refuse_values
        self._own_env, self._elsewhere = False, False  # whether the sizes are opened here; with other numbers
        self._opens_data = False  # whether sizes that data decide are open where all others are fixed

    def _fake_mode(self, leaves):
        from mica._guards import detect_fake_mode
        from mica._subclasses.fake_tensor import FakeTensorMode
        from mica.fx.experimental.symbolic_shapes import ShapeEnv

        found = detect_fake_mode(leaves)
        if self.tracing_mode == "real" or found is not None:
            return found
        env = ShapeEnv() if self.tracing_mode == "symbolic" or self._opens_data else None
        if env is not None:
            self._own_env = env.takes_multiples = True
            if self._elsewhere:
                env.worlds.begin_elsewhere()
            owner = getattr(self.function, "__self__", self.function)
            state = owner.state_dict().values() if isinstance(owner, mica.nn.Module) else ()
            env.avoid = {size for value in state for size in value.shape}
        return FakeTensorMode(allow_fallback_kernels=True, allow_non_fake_inputs=self.allow_real, shape_env=env)

    @staticmethod
    def _begin(env, presets):
        """Let an environment know what an earlier run has found out."""
        env.presets, env.facts = presets, _facts_of_data.among(presets)
        if open_sizes.SMALLER in presets:
            env.worlds.begin_small()

    @staticmethod
    def _given_mode(args):
        from mica._guards import detect_fake_mode

        return detect_fake_mode(tree_leaves(args))

    def run(self, args):
        from mica._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
        from mica._subclasses.open_sizes import NeedsStatic

        presets = {}
        while True:
            try:
                made = self._run(args, presets)
                break
            except (DynamicOutputShapeException, DataDependentOutputException):
                if self.tracing_mode != "fake" or self._own_env or self._given_mode(args) is not None:
                    raise
                self._opens_data = True
            except NeedsStatic as need:
                if not self._own_env or need.presets.items() <= presets.items():
                    raise need.error from need
                presets |= need.presets
        if self._own_env and _invented_numbers.has_large(made, made.shape_env):
            self._elsewhere = True
            _invented_numbers.check(made, self._run(args, presets))
        fixed = FixedSizes.of(tree_leaves(args), presets) if self._own_env else None
        if fixed is not None and fixed.places and not self._serves_others(made, args, presets, fixed):
            made.register_forward_pre_hook(fixed)
        return made

    def _serves_others(self, made, args, presets, fixed):
        """Whether the graph is the same for inputs of which the sizes that were fixed are larger: then it has none of them."""
        leaves, spec = tree_flatten(tuple(args))
        numbers = {size for _, _, size in fixed.places}
        others = {size for leaf in leaves if isinstance(leaf, _C.TensorBase) for size in leaf.shape} - numbers
        times = next((n for n in (2, 3, 5, 7) if not others & {n * size for size in numbers}), 11)

        def larger(leaf):
            if type(leaf) is int:
                return leaf * times if leaf in numbers else leaf
            if not isinstance(leaf, _C.TensorBase) or not numbers & set(leaf.shape):
                return leaf
            sizes = [size * times if size in numbers else size for size in leaf.shape]
            return leaf.detach().new_empty(sizes).requires_grad_(leaf.requires_grad)

        known = {size: found for size, found in presets.items() if size not in numbers}
        known |= {size * times: size * times for size in numbers}
        try:
            return _codes(self._run(tree_unflatten([larger(leaf) for leaf in leaves], spec), known)) == _codes(made)
        except Exception:
            return False

    def _seen(self, name, leaf, fake_mode):
        """An argument as the function sees it."""
        if isinstance(leaf, _C.TensorBase) and fake_mode is not None and self.tracing_mode != "real":
            return fake_mode.from_tensor(leaf, static_shapes=True if self._opens_data else None)
        if type(leaf) is int and self.tracing_mode == "symbolic":
            return fake_mode.shape_env.create_symintnode(fake_mode.shape_env.create_symbol(leaf, name))
        return leaf

    def _run(self, args, presets):
        """One run. Sizes that an earlier one has found not to be open are static, or equal to others."""
        leaves, in_spec = tree_flatten(tuple(args))
        fake_mode = self._fake_mode(leaves)
        if self._own_env:
            self._begin(fake_mode.shape_env, presets)
        env = None if fake_mode is None else fake_mode.shape_env
        tracer = PythonKeyTracer()
        mode = ProxyTorchDispatchMode(tracer, self.tracing_mode, self.table, env)
        names = placeholder_names(self.function, args)
        given = []
        for name, leaf in zip(names, leaves, strict=True):
            node = tracer.graph.create_node("placeholder", name, (), {}, name)
            value = self._seen(name, leaf, fake_mode)
            node.meta["val"] = extract_val(value)
            if isinstance(value, _C.TensorBase):
                track_tensor_tree(value, node, tracer=tracer)
            mode.sizes.add_input(node, value)
            given.append(value)
        with contextlib.ExitStack() as stack:
            if fake_mode is not None:
                stack.enter_context(fake_mode)
            stack.enter_context(disable_autocast_cache())
            stack.enter_context(mode)
            stack.enter_context(UnseenCalls(mode, self.refuse_values))
            result = self.function(*tree_unflatten(given, in_spec))
            outputs = tree_map(mode.argument, result)
        if mode.functional is not None:
            from mica._functorch.functionalized import functionalized

            tracer.graph, outputs = functionalized(tracer.graph, outputs, mode.functional == "mutations_and_views")
        tracer.graph.output(outputs, self._returned())
        return self._module(tracer, args, in_spec, names, fake_mode)

    def _returned(self):
        """The annotation of the function's result, which the code of its graph has too."""
        return getattr(self.function, "__annotations__", {}).get("return")

    def _module(self, tracer, args, in_spec, names, fake_mode):
        graph = tracer.graph
        for node in reversed(graph.nodes):
            is_idle = node.op == "get_attr" or node.meta.get("is_size")
            if is_idle and not node.users:
                graph.erase_node(node)
        if any(not isinstance(arg, _C.TensorBase) and len(tree_leaves(arg)) != 1 for arg in args) or any(
            isinstance(arg, (list, tuple, dict)) for arg in args
        ):
            graph.set_codegen(PytreeInputs(_parameters(self.function, len(args)), in_spec))
        name = self.function.__name__ if hasattr(self.function, "__name__") else type(self.function).__name__
        made = GraphModule(tracer.root, graph, name if name.isidentifier() else "GraphModule")
        made.shape_env = None if fake_mode is None else fake_mode.shape_env
        made._in_spec = in_spec
        return made


class PreDispatchTrace(Trace):
    """One call of what make_fx(pre_dispatch=True) returns: the operators are those that the function calls."""

    def _run(self, args, presets):
        leaves, in_spec = tree_flatten(tuple(args))
        fake_mode = self._fake_mode(leaves)
        if self._own_env:
            self._begin(fake_mode.shape_env, presets)
        recorder = Recorder(None if fake_mode is None else fake_mode.shape_env)
        names, given = placeholder_names(self.function, args), []
        for name, leaf in zip(names, leaves, strict=True):
            value = self._seen(name, leaf, fake_mode)
            recorder.placeholder(name, value, is_input=True)
            given.append(value)
        with contextlib.ExitStack() as stack:
            if fake_mode is not None:
                stack.enter_context(fake_mode)
            stack.enter_context(disable_autocast_cache())
            stack.enter_context(recorder)
            passes = _C._graph_tasks_begun()
            result = self.function(*tree_unflatten(given, in_spec))
            outputs = tree_map(recorder.argument, result)
        if fake_mode is None and recorder.unknown and _C._graph_tasks_begun() > passes:
            raise NotImplementedError(
                "make_fx(pre_dispatch=True): the function computes with a gradient that it takes by itself, and no call was "
                'seen that makes it. Trace it without pre_dispatch, or with tracing_mode="fake"'
            )
        tracer = PythonKeyTracer()
        tracer.graph = recorder.graph
        for name, module in recorder.modules.items():
            tracer.root.add_module(name, module)
        self._keep_constants(tracer, recorder)
        tracer.graph.output(outputs, self._returned())
        return self._module(tracer, args, in_spec, names, fake_mode)

    @staticmethod
    def _keep_constants(tracer, recorder):
        """Tensors that nobody gave the function, as attributes."""
        numbers = {}
        for node in [n for n in tracer.graph.nodes if n.op == "placeholder" and n.name in recorder.constants]:
            tensor = recorder.originals[node.name]
            is_parameter = isinstance(tensor, mica.nn.Parameter)
            prefix = "_param_constant" if is_parameter else "_tensor_constant"
            target = f"{prefix}{numbers.setdefault(prefix, 0)}"
            numbers[prefix] += 1
            if is_parameter:
                tracer.root.register_parameter(target, tensor)
            else:
                tracer.root.register_buffer(target, tensor)
            with tracer.graph.inserting_before(next(n for n in tracer.graph.nodes if n.op != "placeholder")):
                made = tracer.graph.create_node("get_attr", target)
            made.meta = dict(node.meta)
            node.replace_all_uses_with(made)
            tracer.graph.erase_node(node)


def _parameters(function, count):
    try:
        names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"arg_{i}" for i in range(count)]
