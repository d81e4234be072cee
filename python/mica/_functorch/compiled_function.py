"""A function that was traced and compiled for one kind of inputs, and what autograd sees of it."""

import contextlib
import functools

import mica
from mica import _C
from mica._functorch.alias_facts import InputFacts, facts_of
from mica._functorch.functional_graphs import into_functional_graph, without_changes, without_inner_changes
from mica._functorch.joint import joint_of, listed, needs_gradient, without_autocast
from mica._functorch.partitioners import default_partition
from mica.utils._pytree import tree_map_only

__all__ = ["Compiled", "CompiledFunction", "Compilers", "Watched", "copied", "draws_kept", "rename"]


class Compilers:
    """What makes functions of graphs, and how the graphs are to be."""

    def __init__(self, forward, backward, partition, table, inference, keeps_changes=False):
        self.forward, self.backward, self.partition, self.table = forward, backward, partition, table or {}
        self.inference, self.keeps_changes = inference, keeps_changes


def _called(compiled, args):
    """Call the function that a compiler returned: with one list, or with separate arguments."""
    with without_autocast():
        return compiled(list(args)) if getattr(compiled, "_boxed_call", False) else compiled(*args)


def copied(values, leaves=True):
    """Tensors for a trace, which may change them: running statistics, for one. They have the strides of the given ones,
    so that the views that a graph takes of its inputs are possible for both. A function may change the sizes of those that
    are no leaves."""

    def copy(tensor):
        made = _with_same_strides(tensor.detach()).requires_grad_(tensor.requires_grad)
        if leaves or not tensor.requires_grad:
            return made
        with mica.enable_grad():
            return _with_same_strides(made)

    return tree_map_only(_C.TensorBase, copy, values)


def _with_same_strides(tensor):
    made = tensor.clone()
    if made.layout is not mica.strided or not made.numel() or made.stride() == tensor.stride():
        return made
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((extent,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


@contextlib.contextmanager
def draws_kept(values, generators=()):
    """A block after which random numbers are drawn as if a trace within it had drawn none."""
    devices = {value.device for value in values if isinstance(value, _C.TensorBase) and value.device.type == "cuda"}
    states = [(each, each.get_state()) for each in generators]
    try:
        with mica.random.fork_rng(devices=sorted(devices, key=str)):
            yield
    finally:
        for each, state in states:
            each.set_state(state)


class Watched:
    """A function whose call on copies of its inputs was watched, and its graphs.

    A graph returns the inputs that the function changes, as they are afterwards, its results, and the tensors that several
    of the results are views of.
    """

    def __init__(self, fn, flat_inputs, keeps_changes=False, enables=False, generators=()):
        self.enables = not mica.is_grad_enabled() and enables
        self.fn = mica.no_grad()(fn) if self.enables else fn
        self.generators = generators
        self.changed_late = []
        self.needs = [needs_gradient(value) for value in flat_inputs]
        recorded = any(self.needs) and (mica.is_grad_enabled() or enables)
        given = copied(flat_inputs, leaves=not recorded)
        with draws_kept(flat_inputs, generators), mica.enable_grad() if self.enables else contextlib.nullcontext():
            self.inputs, self.outputs, sample, bases = facts_of(self.fn, given, keeps_changes)
        self._check()
        self.bases = len(bases)
        self.outside = [i for i, each in enumerate(self.inputs) if each.outside]
        seen = [each for each in self.inputs if each.changed and not each.hidden]
        own = [each for each in self.outputs if each.kind not in ("input", "of input")]
        self.recorded = recorded and any(each.requires_grad for each in (*own, *seen))
        facts = [*(self.inputs[i] for i in self.outside), *self.outputs]
        self.differentiable = [e.differentiable if isinstance(e, InputFacts) else e.has_tangent for e in facts]
        self.differentiable += [True] * self.bases
        self.count = len(self.differentiable)
        results = [*(given[i] for i in self.outside), *sample, *bases]
        self._tangents = [mica.ones_like(v) for v, d in zip(results, self.differentiable, strict=True) if d]

    def lacks_gradients(self, flat_inputs):
        """Whether one of these inputs wants a gradient that no graph was made for."""
        return any(needs_gradient(v) and not need for v, need in zip(flat_inputs, self.needs, strict=True))

    def _check(self):
        for i, each in enumerate(self.inputs):
            if each.moved and each.changed and each.requires_grad and not each.hidden:
                raise AssertionError(
                    f"Encountered a set_ on a graph input, but the input has other mutations that we cannot keep in the graph: "
                    f"input {i} is changed where autograd sees it. Change it under torch.no_grad(), or before set_()"
                )
            if each.is_subclass and each.reshaped:
                raise RuntimeError(
                    "Metadata mutations are currently not allowed on tensor subclasses: the sizes or strides of input "
                    f"{i} are changed in place. Return a view of it instead"
                )

    def forward_graph(self, flat_inputs, table, tracing_mode="real", pre_dispatch=False):
        """The graph without gradients."""
        from mica.fx.experimental.proxy_tensor import make_fx

        def flat(*primals):
            made, updated, bases = self._on_fresh(primals, copies=False)
            return (*(updated[i] for i in self.outside), *made, *bases)

        given = copied(flat_inputs, leaves=False)
        with draws_kept(flat_inputs, self.generators):
            if pre_dispatch:
                traced = without_changes(make_fx(flat, table, tracing_mode, pre_dispatch=True)(*given))
            else:
                traced = make_fx(into_functional_graph(flat), table, tracing_mode)(*given)
        rename(traced, "arg{}_1", len(flat_inputs), first=0)
        self._return_changes(traced)
        self.without_outer_changes(traced)
        traced.graph.eliminate_dead_code()
        without_inner_changes(traced)
        traced.recompile()
        return traced

    def joint_graph(self, flat_inputs, table):
        """(the graph with gradients, example gradients of the results)."""
        from mica.fx.experimental.proxy_tensor import make_fx

        count, tangents, self._tangents = len(flat_inputs), self._tangents, None

        def flat(*given):
            outputs, gradients = joint_of(self.prepared, self.differentiable)(given[:count], given[count:])
            return [*outputs, *gradients]

        with draws_kept(flat_inputs, self.generators):
            joint = make_fx(into_functional_graph(flat), table)(
                *copied(flat_inputs, leaves=False), *[t.detach() for t in tangents]
            )
        self.without_outer_changes(joint)
        self._mark_late_changes(joint)
        rename(joint, "primals_{}", count)
        rename(joint, "tangents_{}", len(tangents), count)
        joint.graph.eliminate_dead_code()
        return joint, tangents

    def prepared(self, *primals):
        made, updated, bases = self._on_fresh(primals)
        return [*(updated[i] for i in self.outside), *made, *bases]

    def _on_fresh(self, primals, copies=True):
        """(outputs, inputs as they are afterwards, bases) of the function on copies of the inputs that it changes."""
        fresh = list(primals)
        for i in self.outside:
            if copies and self.inputs[i].requires_grad and self.inputs[i].changed:
                fresh[i] = primals[i].clone()
            elif copies and self.inputs[i].reshaped:
                fresh[i] = primals[i].view(primals[i].shape)
        made = listed(self.fn(*fresh))
        bases = {each.source: made[i]._base for i, each in enumerate(self.outputs) if each.kind == "of base"}
        return made, fresh, [bases[i] for i in range(self.bases)]

    def _mark_late_changes(self, joint):
        """Mark the changes of inputs that are made by the functions of a backward pass, and not by the function."""
        inputs = {node: i for i, node in enumerate(n for n in joint.graph.nodes if n.op == "placeholder")}
        for node in joint.graph.nodes:
            i = inputs.get(node.args[0]) if node.target is mica.ops.aten.copy_.default else None
            if i is not None and i < len(self.inputs) and not self.inputs[i].in_graph:
                node.meta["in_backward"] = True
                self.changed_late.append(i)

    def _return_changes(self, module):
        """Let a graph return the change of an input that it makes itself, where the function returns that input."""
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        changes = {n.args[0]: n for n in module.graph.nodes if n.target is mica.ops.aten.copy_.default}
        output = module.graph.output_node()
        values, first = list(output.args[0]), len(self.outside)
        for i, each in enumerate(self.outputs, first):
            if each.kind == "input" and self.inputs[each.source].in_graph:
                values[i] = changes.get(inputs[each.source], values[i])
        output.args = (tuple(values),)

    def without_outer_changes(self, module):
        """Take out of a graph the changes of those inputs whose new values are its results."""
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        outer = {inputs[i] for i in self.outside}
        for node in list(module.graph.nodes):
            if node.target is mica.ops.aten.copy_.default and node.args[0] in outer and not node.users:
                module.graph.erase_node(node)
        module.recompile()


class Compiled(Watched):
    """A function that was traced and compiled for one kind of inputs."""

    def __init__(self, fn, flat_inputs, compilers, enables=False, generators=()):
        super().__init__(fn, flat_inputs, compilers.keeps_changes, enables, generators)
        self.backward = None
        if self.recorded:
            self._compile_both(flat_inputs, compilers)
        else:
            traced = self.forward_graph(flat_inputs, compilers.table)
            self.written = _written_inputs(traced.graph).union(self.outside)
            self.forward = (compilers.inference or compilers.forward)(traced, list(flat_inputs))
        self.fn = self._tangents = None

    def _compile_both(self, flat_inputs, compilers):
        joint, tangents = self.joint_graph(flat_inputs, compilers.table)
        self.written = _written_inputs(joint.graph).union(self.outside)
        self.strides = [t.stride() if t.layout is mica.strided else None for t in tangents]
        # Inputs that get no gradient: a pass that came to them would go on into the graph of what made them.
        gradients = joint.graph.output_node().args[0][self.count :]
        self.apart = {i for i, each in enumerate(gradients) if each is None and self.needs[i]}
        forward, backward = (compilers.partition or default_partition)(
            joint, (list(flat_inputs), tangents), num_fwd_outputs=self.count
        )
        self.forward = compilers.forward(forward, list(flat_inputs))
        examples = [node.meta.get("val") for node in backward.graph.nodes if node.op == "placeholder"]
        self._backward_of = functools.partial(compilers.backward or compilers.forward, backward, examples)

    def __call__(self, flat_inputs):
        if not self.recorded:
            with mica.no_grad():
                made = list(_called(self.forward, flat_inputs))
                for i, each in enumerate(self.outputs, len(self.outside)):
                    made[i] = _own(made[i]) if each.is_own else made[i]
        else:
            with mica.set_grad_enabled(mica.is_grad_enabled() or self.enables):
                inner = [v.detach() if i in self.apart else v for i, v in enumerate(flat_inputs)]
                made = [v[0] if type(v) is list else v for v in CompiledFunction.apply(self, *inner)]
        first, end = len(self.outside), len(self.outside) + len(self.outputs)
        for i, value in zip(self.outside, made[:first], strict=True):
            _update(self.inputs[i], flat_inputs[i], value)
        sources = {"input": flat_inputs, "of input": flat_inputs, "of base": made[end:], "of output": made[first:end]}
        return [
            facts.made_from(sources[facts.kind][facts.source]) if facts.is_alias else _with_requirement(facts, value)
            for facts, value in zip(self.outputs, made[first:end], strict=True)
        ]


def _with_requirement(facts, value):
    """A result that requires grad and has no history, as a view that was made under no_grad."""
    if facts.requires_grad and isinstance(value, _C.TensorBase) and not value.requires_grad and mica.is_grad_enabled():
        return value.requires_grad_()
    return value


def _update(facts, given, value):
    """Do to an input what the function did to it."""
    if facts.moved:
        with mica.no_grad():
            given.data = value.detach()
        return
    if facts.reshaped:
        given.as_strided_(value.shape, value.stride(), given.storage_offset())
    if facts.changed:
        # A leaf that requires grad is changed where no gradients are recorded.
        seen = not facts.hidden and not (given.is_leaf and given.requires_grad)
        with mica.set_grad_enabled(seen and mica.is_grad_enabled()):
            given.copy_(value)


class CompiledFunction(mica.autograd.Function):
    """What autograd sees of a compiled function."""

    @staticmethod
    def forward(ctx, compiled, *inputs):
        made = list(_called(compiled.forward, [v.detach() if isinstance(v, _C.TensorBase) else v for v in inputs]))
        outputs, saved = made[: compiled.count], made[compiled.count :]
        ctx.given = [v for v, needs in zip(inputs, compiled.needs, strict=True) if needs]
        ctx.compiled, ctx.plain = compiled, [None if isinstance(v, _C.TensorBase) else (v,) for v in saved]
        ctx.save_for_backward(*[v for v in saved if isinstance(v, _C.TensorBase)])
        # What is a view of something else is made anew behind the call: autograd does not see it here.
        first = len(compiled.outside)
        unseen = {i for i, each in enumerate(compiled.outputs, first) if each.is_alias}
        unseen.update(i for i in range(first) if not compiled.differentiable[i])
        hidden = {i for i, each in enumerate(compiled.outputs, first) if each.is_own}
        outputs = [_own(o) if i in hidden else _apart(o, inputs) for i, o in enumerate(outputs)]
        ctx.mark_non_differentiable(*[
            o for i, o in enumerate(outputs)
            if not compiled.differentiable[i] and isinstance(o, _C.TensorBase) and i not in unseen
        ])  # fmt: skip
        return tuple([o] if i in unseen else o for i, o in enumerate(outputs))

    @staticmethod
    def backward(ctx, *gradients):
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if value is None else value[0] for value in ctx.plain]
        tangents = [g for g, d in zip(gradients, ctx.compiled.differentiable, strict=True) if d]
        tangents = [_with_strides(g, strides) for g, strides in zip(tangents, ctx.compiled.strides, strict=True)]
        again = mica.is_grad_enabled()
        if again and any(ctx.compiled.needs[i] for i in ctx.compiled.changed_late):
            raise RuntimeError(
                "aot_autograd does not support input mutations with requires_grad in backward for create_graph=True"
            )
        with mica.no_grad():
            if ctx.compiled.backward is None:  # it is compiled where it is first wanted, as in torch
                ctx.compiled.backward = ctx.compiled._backward_of()
            made = list(_called(ctx.compiled.backward, [*saved, *tangents]))
        return (None, *(_once(made, [*ctx.given, *tangents]) if again else made))


def _own(view):
    """A view, as a tensor that is no view: nobody sees what it is a view of."""
    is_view = isinstance(view, _C.TensorBase) and view._base is not None
    return mica.ops.aten._unsafe_view.default(view, view.shape) if is_view else view


def _apart(output, inputs):
    return output.clone() if any(output is v for v in inputs) else output


def _with_strides(gradient, strides):
    """The gradient with the strides of the trace, on which the views in the backward graph rely."""
    if strides is None or gradient is None or gradient.stride() == strides or gradient.layout is not mica.strided:
        return gradient
    with mica.no_grad():
        return gradient.new_empty_strided(gradient.shape, strides).copy_(gradient)


def _once(gradients, given):
    """Gradients that a compiled backward pass has computed of these tensors. They cannot be differentiated."""
    made = iter(_Once.apply(len(given), *given, *(each for each in gradients if each is not None)))
    return [None if each is None else next(made) for each in gradients]


class _Once(mica.autograd.Function):
    @staticmethod
    def forward(ctx, count, *tensors):
        return tuple(each.view_as(each) for each in tensors[count:])

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError("torch.compile with aot_autograd does not currently support double backward")


def rename(module, form, count, start=0, first=1):
    """Give placeholders torch's names: primals_1, tangents_1."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"][start : start + count]
    for i, node in enumerate(nodes, first):
        node._rename(form.format(i))
        node.target = node.name
    module.recompile()


def _written_inputs(graph):
    """The numbers of the inputs that a graph without changes in place writes at its end."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    written = {node.args[0] for node in graph.nodes if node.target is mica.ops.aten.copy_.default}
    return {i for i, node in enumerate(inputs) if node in written}
