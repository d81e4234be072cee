"""Forward and backward pass of a function as two graphs of aten's operators, compiled ahead of the first run.

The function is traced once with its gradients (make_fx, below autograd), the graph is cut into a forward and a backward
part, each is handed to a compiler, and an autograd.Function runs what they return.
"""

import contextlib
import functools

import mica
from mica import _C
from mica._functorch.compilers import make_boxed_compiler, make_boxed_func
from mica._functorch.partitioners import default_partition
from mica.fx.graph import Graph
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

__all__ = ["aot_export_joint_simple", "aot_export_module", "aot_function", "aot_module", "aot_module_simplified",
           "create_joint", "make_boxed_compiler", "make_boxed_func"]  # fmt: skip


def _called(compiled, args):
    """Call the function that a compiler returned: with one list, or with separate arguments."""
    return compiled(list(args)) if getattr(compiled, "_boxed_call", False) else compiled(*args)


def _needs_gradient(tensor):
    return isinstance(tensor, _C.TensorBase) and tensor.requires_grad


def _copied(values):
    """Tensors for a trace, which may change them: running statistics, for one. They have the strides of the given ones,
    so that the views that a graph takes of its inputs are possible for both."""

    def copied(tensor):
        inner = tensor.detach()
        made = inner.clone()
        if made.layout is mica.strided and made.numel() and made.stride() != inner.stride():
            extent = 1 + sum((size - 1) * step for size, step in zip(inner.shape, inner.stride(), strict=True))
            made = inner.as_strided((extent,), (1,)).clone().as_strided(inner.shape, inner.stride())
        return made.requires_grad_(tensor.requires_grad)

    return tree_map_only(_C.TensorBase, copied, values)


@contextlib.contextmanager
def _draws_kept(values, generators=()):
    """A block after which random numbers are drawn as if a trace within it had drawn none."""
    devices = {value.device for value in values if isinstance(value, _C.TensorBase) and value.device.type == "cuda"}
    states = [(each, each.get_state()) for each in generators]
    try:
        with mica.random.fork_rng(devices=sorted(devices, key=str)):
            yield
    finally:
        for each, state in states:
            each.set_state(state)


def create_joint(fn):
    """A function of (inputs, gradients of the outputs) that returns the outputs, and the gradients of the inputs."""

    def joint(primals, tangents):
        with mica.enable_grad():
            outputs = fn(*primals)
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            wanted = [p for p in primals if _needs_gradient(p)]
            pairs = [(o, t) for o, t in zip((o for o in outputs if _needs_gradient(o)), tangents, strict=True)]
            gradients = iter(())
            if wanted and pairs:
                gradients = iter(mica.autograd.grad(
                    [o for o, _ in pairs], wanted, [t for _, t in pairs], allow_unused=True
                ))  # fmt: skip
        return outputs, [next(gradients, None) if _needs_gradient(p) else None for p in primals]

    return joint


class _Compiled:
    """A function that was traced and compiled for one kind of inputs."""

    def __init__(self, fn, flat_inputs, fw_compiler, bw_compiler, partition_fn, decompositions, inference_compiler,
                 enables=False, generators=()):  # fmt: skip
        from mica._functorch.functional_graphs import into_functional_graph
        from mica.fx.experimental.proxy_tensor import make_fx

        self.needs = [_needs_gradient(value) for value in flat_inputs]
        table = decompositions or {}
        self.enables = not mica.is_grad_enabled() and enables
        if not any(self.needs) or not (mica.is_grad_enabled() or enables):
            self.backward = None
            with mica.no_grad(), _draws_kept(flat_inputs, generators):
                traced = make_fx(into_functional_graph(lambda *primals: fn(*primals)), table)(*_copied(flat_inputs))
            _rename(traced, "primals", len(flat_inputs))
            self.written = _written_inputs(traced.graph)
            self.forward = (inference_compiler or fw_compiler)(traced, list(flat_inputs))
            return
        if self.enables:
            fn = mica.no_grad()(fn)
        with mica.enable_grad():
            given = [v.clone() if isinstance(v, _C.TensorBase) else v for v in _copied(flat_inputs)]
        before = [v._version if _may_change(v) else None for v in given]
        with _draws_kept(flat_inputs, generators):
            sample = fn(*given)
        sample = list(sample) if isinstance(sample, (list, tuple)) else [sample]
        # Inputs that are changed in place by what has a gradient: their new values are further outputs.
        self.changed = [i for i, v in enumerate(given)
                        if before[i] is not None and v._version != before[i] and v.requires_grad]  # fmt: skip
        if self.changed:
            self.same = [next((i for i in self.changed if value is given[i]), None) for value in sample]
            fn, sample = _with_changed_inputs(fn, self.changed), [*sample, *(given[i] for i in self.changed)]
        del given
        self.differentiable = [_needs_gradient(value) for value in sample]
        tangents = [mica.ones_like(value) for value in sample if _needs_gradient(value)]
        count = len(flat_inputs)

        def flat(*given):
            outputs, gradients = create_joint(fn)(given[:count], given[count:])
            return [*outputs, *gradients]

        with _draws_kept(flat_inputs, generators):
            joint = make_fx(into_functional_graph(flat), table)(*_copied(flat_inputs), *[t.detach() for t in tangents])
        self.written = _written_inputs(joint.graph).union(self.changed)
        self.strides = [t.stride() if t.layout is mica.strided else None for t in tangents]
        _rename(joint, "primals", count)
        _rename(joint, "tangents", len(tangents), count)
        joint.graph.eliminate_dead_code()
        self.outputs = len(sample)
        # Inputs that get no gradient: a pass that came to them would go on into the graph of what made them.
        gradients = next(node for node in joint.graph.nodes if node.op == "output").args[0][self.outputs :]
        self.apart = {i for i, each in enumerate(gradients) if each is None and self.needs[i]}
        forward, backward = (partition_fn or default_partition)(
            joint, (list(flat_inputs), tangents), num_fwd_outputs=self.outputs
        )
        self.forward = fw_compiler(forward, list(flat_inputs))
        examples = [node.meta.get("val") for node in backward.graph.nodes if node.op == "placeholder"]
        self.backward = (bw_compiler or fw_compiler)(backward, examples)

    def __call__(self, flat_inputs):
        if self.backward is None:
            return list(_called(self.forward, flat_inputs))
        with mica.set_grad_enabled(mica.is_grad_enabled() or self.enables):
            return self._recorded(flat_inputs)

    def _recorded(self, flat_inputs):
        inner = [v.detach() if i in self.apart else v for i, v in enumerate(flat_inputs)]
        if not self.changed:
            return list(_Run.apply(self, *inner))
        made = list(_Run.apply(self, *(v.clone() if i in self.changed else v for i, v in enumerate(inner))))
        count = len(made) - len(self.changed)
        for i, value in zip(self.changed, made[count:], strict=True):
            # A leaf that requires grad is changed where no gradients are recorded.
            with mica.set_grad_enabled(not flat_inputs[i].is_leaf or not flat_inputs[i].requires_grad):
                flat_inputs[i].copy_(value)
        return [value if i is None else flat_inputs[i] for value, i in zip(made[:count], self.same, strict=True)]


def _may_change(value):
    return isinstance(value, _C.TensorBase) and not value.is_inference()


def _with_changed_inputs(fn, changed):
    """The function on copies of the inputs that it changes, which it returns behind its outputs."""

    def run(*primals):
        inner = [v.clone() if i in changed else v for i, v in enumerate(primals)]
        made = fn(*inner)
        return [*(made if isinstance(made, (list, tuple)) else [made]), *(inner[i] for i in changed)]

    return run


class _Run(mica.autograd.Function):
    @staticmethod
    def forward(ctx, compiled, *inputs):
        made = list(_called(compiled.forward, [v.detach() if isinstance(v, _C.TensorBase) else v for v in inputs]))
        outputs, saved = made[: compiled.outputs], made[compiled.outputs :]
        ctx.given = [v for v, needs in zip(inputs, compiled.needs, strict=True) if needs]
        ctx.compiled, ctx.plain = compiled, [None if isinstance(v, _C.TensorBase) else (v,) for v in saved]
        ctx.save_for_backward(*[v for v in saved if isinstance(v, _C.TensorBase)])
        ctx.mark_non_differentiable(*[
            o for o, d in zip(outputs, compiled.differentiable, strict=True) if not d and isinstance(o, _C.TensorBase)
        ])  # fmt: skip
        return tuple(o.clone() if any(o is v for v in inputs) else o for o in outputs)

    @staticmethod
    def backward(ctx, *gradients):
        tensors = iter(ctx.saved_tensors)
        saved = [next(tensors) if value is None else value[0] for value in ctx.plain]
        tangents = [g for g, d in zip(gradients, ctx.compiled.differentiable, strict=True) if d]
        tangents = [_with_strides(g, strides) for g, strides in zip(tangents, ctx.compiled.strides, strict=True)]
        again = mica.is_grad_enabled()
        with mica.no_grad():
            made = list(_called(ctx.compiled.backward, [*saved, *tangents]))
        return (None, *(_once(made, [*ctx.given, *tangents]) if again else made))


def _with_strides(gradient, strides):
    """The gradient with the strides of the trace, on which the views in the backward graph rely."""
    if strides is None or gradient is None or gradient.stride() == strides or gradient.layout is not mica.strided:
        return gradient
    with mica.no_grad():
        return mica.empty_strided(gradient.shape, strides, dtype=gradient.dtype, device=gradient.device).copy_(gradient)


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


def _rename(module, prefix, count, start=0):
    """Give placeholders torch's names: primals_1, tangents_1."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"][start : start + count]
    for i, node in enumerate(nodes):
        node._rename(f"{prefix}_{i + 1}")
        node.target = node.name
    module.recompile()


def _kinds(values):
    return tuple(
        (v.dtype, tuple(v.shape), v.stride(), str(v.device), v.requires_grad)
        if isinstance(v, _C.TensorBase)
        else (type(v), v)
        for v in values
    )


def _shared(values):
    """The numbers of the inputs that lie in the same memory, group by group."""
    groups = {}
    for i, value in enumerate(values):
        if isinstance(value, _C.TensorBase) and value.layout is mica.strided and value.numel():
            groups.setdefault(value.untyped_storage()._cdata, []).append(i)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _written_inputs(graph):
    """The numbers of the inputs that a graph without changes in place writes at its end."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    written = {node.args[0] for node in graph.nodes if node.target is mica.ops.aten.copy_.default}
    return {i for i, node in enumerate(inputs) if node in written}


def _changes_shared(fn, leaves, spec, shared):
    """Whether a function changes an input that lies in the memory of another one."""
    with mica.inference_mode(False), mica.no_grad(), _draws_kept(leaves):
        copies = [v.detach().clone() if isinstance(v, _C.TensorBase) else v for v in leaves]
        before = {i: copies[i]._version for group in shared for i in group}
        args, kwargs = tree_unflatten(copies, spec)
        fn(*args, **kwargs)
    return any(copies[i]._version != version for i, version in before.items())


def aot_function(fn, fw_compiler, bw_compiler=None, partition_fn=None, decompositions=None, num_params_buffers=0,
                 keep_inference_input_mutations=False, inference_compiler=None, *, dynamic=False, **options):  # fmt: skip
    """A function that is traced and compiled at its first call, and again for inputs of other kinds."""
    known = {}

    @functools.wraps(fn)
    def compiled(*args, **kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        key = (spec, _kinds(leaves), mica.is_grad_enabled(), shared := _shared(leaves))
        if key not in known and shared and _changes_shared(fn, leaves, spec, shared):
            known[key] = None  # a graph has its inputs apart: what one of them writes, another would not see
        if key in known and known[key] is None:
            return fn(*args, **kwargs)
        if key not in known:
            shape = []

            def flat(*values):
                inner_args, inner_kwargs = tree_unflatten(list(values), spec)
                made, out_spec = tree_flatten(fn(*inner_args, **inner_kwargs))
                shape[:] = [out_spec]
                return made

            made = _Compiled(flat, leaves, fw_compiler, bw_compiler, partition_fn, decompositions, inference_compiler)
            known[key] = (made, shape[0])
        made, out_spec = known[key]
        return tree_unflatten(made(leaves), out_spec)

    return compiled


def aot_module(mod, *args, **kwargs):
    """A module whose forward is compiled as aot_function does, with its parameters and buffers as inputs."""
    from mica.func import functional_call

    def call(named_params, named_buffers, *inner_args, **inner_kwargs):
        return functional_call(mod, {**named_params, **named_buffers}, inner_args, inner_kwargs)

    compiled = aot_function(call, *args, **kwargs)

    class AOTModule(mica.nn.Module):
        """The module, compiled."""

        def __init__(self):
            super().__init__()
            self.orig_module = mod

        def forward(self, *inner_args, **inner_kwargs):
            return compiled(dict(mod.named_parameters()), dict(mod.named_buffers()), *inner_args, **inner_kwargs)

    return AOTModule()


def aot_module_simplified(mod, args, fw_compiler=None, bw_compiler=None, partition_fn=None, decompositions=None,
                          keep_inference_input_mutations=False, inference_compiler=None, **options):  # fmt: skip
    """A function of a module's inputs, compiled for inputs like these: what backends of torch.compile return."""
    parameters = [*mod.named_parameters(remove_duplicate=False), *mod.named_buffers(remove_duplicate=False)]
    names, values = [name for name, _ in parameters], [value for _, value in parameters]
    count = len(values)
    shape = []

    def flat(*given):
        from mica.func import functional_call

        inner = given[count:]
        made = functional_call(mod, dict(zip(names, given[:count], strict=True)), inner) if names else mod(*inner)
        made, out_spec = tree_flatten(made)
        shape[:] = [out_spec]
        return made

    # A graph that begins where no gradients are recorded may record some later.
    nodes = mod.graph.nodes if isinstance(getattr(mod, "graph", None), Graph) else ()
    enables = any(node.target is _C._set_grad_enabled and node.args[0] for node in nodes)

    generators = {value for node in nodes for value in node.kwargs.values() if isinstance(value, _C.Generator)}

    def compile(inputs):
        options = (partition_fn, decompositions, inference_compiler, enables, generators)
        return _Compiled(flat, inputs, fw_compiler, bw_compiler, *options)

    compiled = compile([*values, *args])
    # A graph of aten's operators is made for fixed numbers. Where sizes are among the inputs, other sizes get another
    # graph.
    known = {_kinds(args): compiled} if any(type(value) is int for value in args) else None

    def forward(*inputs):
        made = compiled
        if known is not None and (made := known.get(kinds := _kinds(inputs))) is None:
            made = known[kinds] = compile([*values, *inputs])
        given = [*values, *inputs]
        if made.written and any(not made.written.isdisjoint(group) for group in _shared(given)):
            return tree_unflatten(
                flat(*given), shape[0]
            )  # its graph has inputs apart: one would not see what another writes
        return tree_unflatten(made(given), shape[0])

    forward.zero_grad, forward.named_parameters, forward.named_buffers = (
        mod.zero_grad,
        mod.named_parameters,
        mod.named_buffers,
    )
    forward._differentiable_once = True  # the backward pass is a graph without one of its own
    return forward


def aot_export_module(mod, args, *, trace_joint, output_loss_index=None, **options):
    raise NotImplementedError("aot_export_module: torch.export.export makes graphs of modules here")


def aot_export_joint_simple(func, args, *, trace_joint=True, num_params_buffers=0, decompositions=None):
    """The graph of a function, with its gradients if asked for."""
    from mica._functorch.functional_graphs import into_functional_graph
    from mica.fx.experimental.proxy_tensor import make_fx

    if not trace_joint:
        return make_fx(into_functional_graph(func), decompositions)(*args)
    outputs = func(*_copied(tuple(args)))
    tangents = [mica.ones_like(o) for o in tree_leaves(outputs) if _needs_gradient(o)]
    return make_fx(into_functional_graph(create_joint(func)), decompositions)(list(_copied(tuple(args))), tangents)
