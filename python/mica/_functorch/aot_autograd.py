"""Forward and backward pass of a function as two graphs of aten's operators, compiled ahead of the first run.

The function is traced once with its gradients (make_fx, below autograd), the graph is cut into a forward and a backward
part, each is handed to a compiler, and an autograd.Function runs what they return.
"""

import functools

import mica
from mica import _C
from mica._functorch.compiled_function import Compilers
from mica._functorch.compilers import make_boxed_compiler, make_boxed_func
from mica._functorch.exported import BackwardSignature, GraphSignature, aot_export_joint_simple, aot_export_module
from mica._functorch.joint import joint_of
from mica._functorch.shared_inputs import compiled_for, repeats, sharing
from mica._guards import detect_fake_mode
from mica.fx.graph import Graph
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["BackwardSignature", "GraphSignature", "aot_export_joint_simple", "aot_export_module", "aot_function", "aot_module", "aot_module_simplified",
           "create_joint", "make_boxed_compiler", "make_boxed_func"]  # fmt: skip


def create_joint(fn):
    """A function of (inputs, gradients of the outputs) that returns the outputs, and the gradients of the inputs."""
    return joint_of(fn)


def _kinds(values):
    return tuple(
        (v.dtype, tuple(v.shape), v.stride(), str(v.device), v.requires_grad, v.is_leaf)
        if isinstance(v, _C.TensorBase)
        else (type(v), v)
        for v in values
    )


def _places(values):
    """Which inputs are the same tensor, which share memory, and where in it they lie."""
    groups = tuple(tuple((i, values[i].storage_offset()) for i in group) for group in sharing(values))
    return tuple(repeats(values)), groups


def aot_function(fn, fw_compiler, bw_compiler=None, partition_fn=None, decompositions=None, num_params_buffers=0,
                 keep_inference_input_mutations=False, inference_compiler=None, *, dynamic=False, **options):  # fmt: skip
    """A function that is traced and compiled at its first call, and again for inputs of other kinds."""
    known = {}
    compilers = Compilers(
        fw_compiler, bw_compiler, partition_fn, decompositions, inference_compiler, keep_inference_input_mutations
    )

    @functools.wraps(fn)
    def compiled(*args, **kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        key = (spec, _kinds(leaves), mica.is_grad_enabled(), _places(leaves))
        if key not in known:
            shape = []

            def flat(*values):
                inner_args, inner_kwargs = tree_unflatten(list(values), spec)
                made, out_spec = tree_flatten(fn(*inner_args, **inner_kwargs))
                shape[:] = [out_spec]
                return made

            made = compiled_for(flat, leaves, compilers, True)
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

    compilers = Compilers(
        fw_compiler, bw_compiler, partition_fn, decompositions, inference_compiler, keep_inference_input_mutations
    )

    def compile(inputs):
        return compiled_for(flat, inputs, compilers, enables, generators)

    # A graph of aten's operators is made for fixed numbers. Where sizes are among the inputs, other sizes get another
    # graph. So do inputs that share memory otherwise, if one of them is changed: a graph has its inputs apart. Of fake
    # tensors there is no graph: it is made at the first call.
    is_fake = detect_fake_mode(args) is not None
    has_numbers = is_fake or any(type(value) is int for value in args)
    known = {}

    def key_of(inputs, given):
        needs = tuple(isinstance(value, _C.TensorBase) and value.requires_grad for value in given)
        return has_numbers and _kinds(inputs), needs, _places(given)

    compiled = None if is_fake else compile([*values, *args])
    if compiled is not None:
        known[key_of(args, [*values, *args])] = compiled

    def forward(*inputs):
        given, made = [*values, *inputs], compiled
        # Without a key, the graph for the example is that of other inputs, too.
        if has_numbers or made.written or made.lacks_gradients(given):
            key = key_of(inputs, given)
            if (made := known.get(key)) is None:
                made = known[key] = compile(given)
        return tree_unflatten(made(given), shape[0])

    forward.zero_grad, forward.named_parameters, forward.named_buffers = (
        mod.zero_grad,
        mod.named_parameters,
        mod.named_buffers,
    )
    forward._differentiable_once = True  # the backward pass is a graph without one of its own
    return forward
