"""Graphs of aten's operators without functions around them: for programs that take them elsewhere."""

import dataclasses

import mica
from mica import _C
from mica._functorch import config
from mica._functorch.compiled_function import Watched, copied
from mica._functorch.functional_graphs import into_functional_graph
from mica._functorch.joint import casts_of_backward
from mica._functorch.shared_inputs import repeats, sharing
from mica.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

__all__ = ["BackwardSignature", "GraphSignature", "aot_export_joint_simple", "aot_export_module"]

_REFUSED = (
    "This is currently banned in the aot_export workflow. If you need this functionality, please file a github issue."
)


@dataclasses.dataclass
class BackwardSignature:
    """Which results of a graph are gradients, and of what."""

    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


@dataclasses.dataclass
class GraphSignature:
    """What the inputs and the results of a graph are: parameters, buffers and inputs; their new values and results."""

    parameters: list
    buffers: list
    user_inputs: list
    user_outputs: list
    inputs_to_parameters: dict
    inputs_to_buffers: dict
    buffers_to_mutate: dict
    parameters_to_mutate: dict
    user_inputs_to_mutate: dict
    in_spec: TreeSpec
    out_spec: TreeSpec
    backward_signature: BackwardSignature | None
    input_tokens: list
    output_tokens: list


class _Function:
    """A function of leaves, which notes how its results are nested."""

    def __init__(self, function, args, kwargs):
        self.function, self.out_spec = function, None
        self.leaves, self.in_spec = tree_flatten((tuple(args), kwargs))

    def __call__(self, *leaves):
        args, kwargs = tree_unflatten(list(leaves), self.in_spec)
        made, self.out_spec = tree_flatten(self.function(*args, **kwargs))
        return made


def _watched(function, leaves, joint):
    """The function's facts. What a graph alone cannot say is refused."""
    if config.functionalize_rng_ops:
        raise RuntimeError(
            "Functionalized RNG is not currently supported in the aot_export workflow. Please file a github issue, or otherwise "
            "set torch._functorch.config.functionalize_rng_ops = False."
        )
    watched = Watched(function, leaves)
    for i, each in enumerate(watched.inputs):
        if each.reshaped or each.moved:
            raise RuntimeError(
                "Found an input that received a metadata mutation, through e.g. a call to `.resize_()` or `.transpose_()`.\n"
                f"{_REFUSED}\nIt is input {i}."
            )
        if joint and each.changed and each.requires_grad:
            raise RuntimeError(
                f"Found a graph input that requires gradients, and received a mutation.\n{_REFUSED}\nIt is input {i}."
            )
    changed = [i for i, each in enumerate(watched.inputs) if each.changed]
    firsts = repeats(leaves)
    if any(firsts.count(firsts[i]) > 1 for i in changed):
        raise RuntimeError(
            "Encountered duplicated inputs that are mutated in the graph you are trying to export.\n"
            "This functionality is currently not supported. If needed, please file a github issue."
        )
    if any(not set(changed).isdisjoint(group) for group in sharing(leaves)):
        raise RuntimeError(
            "Encountered aliased inputs that are mutated in the graph you are trying to export.\n"
            "This functionality is currently not supported. If needed, please file a github issue."
        )
    return watched


def _checked_loss(function, index):
    """A function whose one differentiable result is a loss of one element."""

    def run(*args, **kwargs):
        made = function(*args, **kwargs)
        if index is None:
            raise RuntimeError(
                "If trace_joint=True it is required that one of your forward outputs must be a scalar loss.\n"
                "You must specify the which (index) output is the loss with output_loss_index."
            )
        made = (made,) if isinstance(made, _C.TensorBase) else made
        if not isinstance(made, (tuple, list)):
            raise RuntimeError(
                f"Expected forward output to be either a tensor or a list/tuple of tensors. found {type(made)}"
            )
        for i, each in enumerate(made):
            if each.requires_grad and i != index:
                raise RuntimeError(
                    "Found an output of the forward that requires gradients, that was not the scalar loss.\n"
                    "We require all outputs to the forward that are not the scalar loss to not require gradient, because we will "
                    "only compute a backward graph against the scalar loss.\nYou can fix this by calling .detach() on each of "
                    f"your forward outputs that is not the loss.\nYou specified that output index {index} is the loss, but we "
                    f"found that the output at index {i} requires gradients."
                )
        loss = made[index]
        if not loss.requires_grad:
            raise RuntimeError(f"The output at index {index} was marked as the loss, but it does not require gradients")
        if loss.numel() != 1:
            raise RuntimeError(
                f"We require the output marked as the loss (at index {index}) to be a scalar, but it has shape {loss.shape}"
            )
        return made

    return run


def aot_export_module(mod, args, *, decompositions=None, trace_joint, output_loss_index=None, pre_dispatch=False,
                      dynamic_shapes=None, kwargs=None):  # fmt: skip
    """(graph, signature) of a module: its parameters, its buffers and the inputs are the graph's inputs, and new values of
    those that it changes are its first results.

    Args:
        trace_joint: whether the graph computes the gradients of the loss as well, behind the results
        output_loss_index: which result is the loss
        pre_dispatch: whether the operators are those that the module calls
        dynamic_shapes: whether sizes are open
    """
    if pre_dispatch and trace_joint:
        raise RuntimeError("pre_dispatch is not supported when trace_joint is True.")
    from mica.func import functional_call

    parameters = dict(mod.named_parameters(remove_duplicate=False))
    buffers = dict(mod.named_buffers(remove_duplicate=False))
    names = [*parameters, *buffers]

    def call(*given, **more):
        state = dict(zip(names, given[: len(names)], strict=True))
        return functional_call(mod, state, tuple(given[len(names) :]), more)

    function = _Function(
        _checked_loss(call, output_loss_index) if trace_joint else call,
        [*parameters.values(), *buffers.values(), *args], kwargs or {},
    )  # fmt: skip
    table = decompositions or {}
    if trace_joint:
        watched = _watched(function, function.leaves, joint=True)
        module = _with_gradients(watched, function.leaves, table, output_loss_index)
    else:
        recording = mica.is_grad_enabled() and pre_dispatch
        with mica.set_grad_enabled(recording):
            watched = _watched(function, function.leaves, joint=False)
            mode = "symbolic" if dynamic_shapes else "real"
            module = watched.forward_graph(function.leaves, table, mode, pre_dispatch)
    return module, _signature(module, watched, function, list(parameters), list(buffers), output_loss_index)


def _with_gradients(watched, leaves, table, index):
    """The graph of the results and of the gradients of the loss."""
    from mica._functorch.compiled_function import rename
    from mica.fx.experimental.proxy_tensor import make_fx

    def flat(*primals):
        with mica.enable_grad():
            made = watched.prepared(*primals)
            wanted = [value for value, needs in zip(primals, watched.needs, strict=True) if needs]
            with casts_of_backward():
                gradients = mica.autograd.grad(made[len(watched.outside) + index], wanted, allow_unused=True)
        if any(each is None for each in gradients):
            raise AssertionError(
                "Found a parameter that did not receive a gradient.\n"
                '"This is most likely a bug, but if this needs to be supported please comment on this Github issue:\n'
                "https://github.com/pytorch/pytorch/issues/101192"
            )
        return (*made, *gradients)

    module = make_fx(into_functional_graph(flat), table)(*copied(leaves, leaves=False))
    rename(module, "arg{}_1", len(leaves), first=0)
    watched.without_outer_changes(module)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _signature(module, watched, function, parameters, buffers, index):
    given = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    returned = [getattr(value, "name", None) for value in module.graph.output_node().args[0]]
    state = [*parameters, *buffers]
    fresh, made = len(watched.outside), len(watched.outputs)
    changed = list(zip(watched.outside, returned, strict=False))
    backward, gradients = None, returned[fresh + made :]
    if gradients:
        wanted = [i for i, needs in enumerate(watched.needs) if needs]
        pairs = list(zip(gradients, wanted, strict=True))
        backward = BackwardSignature(
            {name: parameters[i] for name, i in pairs if i < len(parameters)},
            {name: given[i] for name, i in pairs if i >= len(state)},
            returned[index],
        )
    return GraphSignature(
        parameters=parameters,
        buffers=buffers,
        user_inputs=given[len(state) :],
        user_outputs=returned[fresh : fresh + made],
        inputs_to_parameters=dict(zip(given, parameters, strict=False)),
        inputs_to_buffers=dict(zip(given[len(parameters) :], buffers, strict=False)),
        buffers_to_mutate={name: state[i] for i, name in changed if len(parameters) <= i < len(state)},
        parameters_to_mutate={name: parameters[i] for i, name in changed if i < len(parameters)},
        user_inputs_to_mutate={name: given[i] for i, name in changed if i >= len(state)},
        in_spec=function.in_spec,
        out_spec=function.out_spec,
        backward_signature=backward,
        input_tokens=[],
        output_tokens=[],
    )


def aot_export_joint_simple(func, args, *, trace_joint, num_params_buffers=0, decompositions=None):
    """The graph of a function of tensors, with its gradients if asked for: `default_partition` cuts that in two."""
    function = _Function(func, args, {})
    with mica.set_grad_enabled(mica.is_grad_enabled() and trace_joint):
        watched = _watched(function, function.leaves, joint=trace_joint)
    if any(each.outside for each in watched.inputs):
        changed = [i for i, each in enumerate(watched.inputs) if each.outside]
        raise RuntimeError(
            f"aot_export_joint_simple does not support input mutations. ViewAndMutationMeta: inputs {changed} are changed"
        )
    if any(each.kind != "value" for each in watched.outputs):
        kinds = [each.kind for each in watched.outputs]
        raise RuntimeError(
            f"aot_export_joint_simple does not support outputs that alias inputs. The outputs are {kinds}"
        )
    for name, given in (
        ("inputs", args),
        ("outputs", tree_unflatten([None] * len(watched.outputs), function.out_spec)),
    ):
        if not isinstance(given, (list, tuple)):
            raise RuntimeError(
                f"aot_export_joint_simple requires {name} to be a single list/tuple. It is a {type(given)}"
            )
        if any(tree_leaves(each) != [each] and each is not None for each in given):
            raise RuntimeError(f"aot_export_joint_simple requires individual {name} not to be pytrees.")
    if not watched.recorded:
        with mica.no_grad():
            return watched.forward_graph(function.leaves, decompositions or {})
    joint, tangents = watched.joint_graph(function.leaves, decompositions or {})
    return _nested(joint, len(function.leaves), len(tangents), watched.count)


def _nested(joint, inputs, tangents, outputs):
    """A joint graph as a function of (inputs, gradients of the outputs) that returns (outputs, gradients of the inputs)."""
    from mica.fx._pytree_codegen import _PyTreeCodeGen, _PyTreeInfo

    in_spec = tree_flatten([[0] * inputs, [0] * tangents])[1]
    out_spec = tree_flatten(([0] * outputs, [0] * inputs))[1]
    joint.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["primals", "tangents"], in_spec, out_spec)))
    joint.recompile()
    return joint
