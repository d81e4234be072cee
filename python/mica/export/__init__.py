"""torch.export: a module as a graph in terms of torch.ops.aten, run once on example inputs."""

import inspect

import mica
from mica.export.dynamic_shapes import AdditionalInputs, Constraint, Dim, ShapesCollection, dims, named_sizes
from mica.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    default_decompositions,
)
from mica.export.graph_signature import (
    ConstantArgument,
    ExportBackwardSignature,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

__all__ = ["AdditionalInputs", "Constraint", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry",
           "ModuleCallSignature", "ShapesCollection", "default_decompositions", "dims", "draft_export", "export", "load",
           "register_dataclass", "save"]  # fmt: skip

_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211)


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(),
           prefer_deferred_runtime_asserts_over_guards=False):  # fmt: skip
    """The program of a module. Sizes are those of the example, apart from those that `dynamic_shapes` names.

    The module runs once; where there are dynamic sizes, the graph is tried at another size beside the module, and an
    error says where they differ.
    """
    if not isinstance(mod, mica.nn.Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    kwargs = dict(kwargs or {})
    parameters = list(inspect.signature(mod.forward).parameters)
    if isinstance(dynamic_shapes, AdditionalInputs):
        program = export(mod, args, kwargs, dynamic_shapes=dynamic_shapes.labels(mod, args, kwargs))
        dynamic_shapes.verify(program)
        return program
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    named = named_sizes(dynamic_shapes, args, kwargs, parameters)
    if not named:
        return _exported(mod, args, kwargs, {}, parameters)
    taken = {size for value in mod.state_dict().values() for size in value.shape}
    primes = [prime for prime in _PRIMES if not any(size % prime == 0 for size in taken if size)]
    sizes, others = {}, {}
    for label in named.values():
        key = getattr(label, "__name__", label)
        if key not in sizes:
            low, high = getattr(label, "min", 0), getattr(label, "max", None)
            allowed = [prime for prime in primes if prime >= low and (high is None or prime <= high)]
            if not allowed:
                raise NotImplementedError(f"{label!r} leaves no size to trace at: Mica traces at primes from 101 on")
            sizes[key] = allowed[0]
            others[key] = allowed[1] if len(allowed) > 1 else max(low, 2)
            primes = [prime for prime in primes if prime not in (sizes[key], others[key])]
    program = _exported(mod, *_resized(args, kwargs, named, sizes), named, parameters, sizes)
    program._example_inputs = (args, kwargs)
    _compare(mod, program, *_resized(args, kwargs, named, others))
    return program


def _resized(args, kwargs, named, sizes):
    from mica.utils._pytree import tree_flatten, tree_unflatten

    leaves, spec = tree_flatten((args, kwargs))
    for (position, axis), label in named.items():
        size = sizes[getattr(label, "__name__", label)]
        index = mica.arange(size) % leaves[position].shape[axis]
        leaves[position] = leaves[position].index_select(axis, index.to(leaves[position].device))
    return tree_unflatten(leaves, spec)


def _compare(mod, program, args, kwargs):
    """The graph at another size gives what the module gives."""
    from mica.utils._pytree import tree_leaves

    with mica.no_grad(), mica.random.fork_rng(devices=[]):
        state = mica.get_rng_state()
        try:
            theirs = tree_leaves(program.module(check_guards=False)(*args, **kwargs))
        except Exception as error:
            raise RuntimeError(f"Constraints violated: the graph does not run at other sizes: {error}") from error
        mica.set_rng_state(state)
        ours = tree_leaves(mod(*args, **kwargs))
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, mica.Tensor) and not (a.shape == b.shape and mica.allclose(a, b, 1e-3, 1e-4, equal_nan=True)):
            raise RuntimeError(
                "Constraints violated: the module's result at other sizes is not the graph's. The program computes with "
                "a dynamic size in a way that tracing does not see; give that size as a fixed one"
            )


def _names(value, name):
    """The names of the leaves of an argument: y, y_k, y_0."""
    from mica import _C

    if isinstance(value, (list, tuple)):
        return [leaf for i, each in enumerate(value) for leaf in _names(each, f"{name}_{i}")]
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in _names(each, f"{name}_{key}")]
    if isinstance(value, _C.TensorBase):
        return [name]
    from mica.utils._pytree import tree_flatten

    count = len(tree_flatten(value)[0])
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def _exported(mod, args, kwargs, named, parameters, sizes=None):
    from mica.export._record import Recorder
    from mica.utils._pytree import tree_flatten

    recorder, specs, state = Recorder({}), [], mod.state_dict(keep_vars=True)
    constants, persistent = {}, set(state)
    for kind, prefix, values in (
        (InputKind.PARAMETER, "p_", mod.named_parameters()),
        (InputKind.BUFFER, "b_", mod.named_buffers()),
    ):
        for target, value in values:
            node = recorder.placeholder(prefix + target.replace(".", "_"), value)
            keeps = None if kind is InputKind.PARAMETER else target in persistent
            specs.append(InputSpec(kind, TensorArgument(node.name), target, keeps))
            if keeps is False:
                constants[target] = value
    leaves, in_spec = tree_flatten((args, kwargs))
    given = {**dict(zip(parameters, args, strict=False)), **kwargs}
    extra = [leaf for i, value in enumerate(args[len(parameters) :]) for leaf in _names(value, f"args_{i}")]
    names = [leaf for name, value in given.items() for leaf in _names(value, name)] + extra
    inputs, free = [], {}
    for i, (name, value) in enumerate(zip(names, leaves, strict=True)):
        node = recorder.placeholder(name, value, is_input=True)
        is_tensor = isinstance(value, mica.Tensor)
        inputs.append(InputSpec(
            InputKind.USER_INPUT, TensorArgument(node.name) if is_tensor else ConstantArgument(node.name, value), None
        ))  # fmt: skip
        for (position, axis), label in named.items():
            if position == i:
                key = getattr(label, "__name__", label)
                recorder.sizes.setdefault(sizes[key], (node, axis))
                free.setdefault(node.name, {})[axis] = (getattr(label, "min", 0), getattr(label, "max", None))
    was = mica.compiler._is_exporting_flag
    mica.compiler._is_exporting_flag = True
    try:
        with recorder:
            result = mod(*args, **kwargs)
    finally:
        mica.compiler._is_exporting_flag = was
    results, out_spec = tree_flatten(result)
    made = recorder.finish(results)
    outputs = [
        OutputSpec(
            OutputKind.USER_OUTPUT,
            TensorArgument(node.name) if hasattr(node, "name") else ConstantArgument(f"output_{i}", node),
            None,
        )
        for i, node in enumerate(made)
    ]
    for name, value in recorder.constants.items():
        target = name.removeprefix("c_")
        constants[target] = value
        specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), target))
    recorder.graph.lint()
    top = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))
    ranges = {getattr(label, "__name__", label): label for label in named.values()}
    return ExportedProgram(
        mica.nn.Module(), recorder.graph, ExportGraphSignature([*specs, *inputs], outputs), state, ranges, [top],
        (args, kwargs), constants, free=free, training=mod.training,
    )  # fmt: skip


def draft_export(mod, args, kwargs=None, *, dynamic_shapes=None, **options):
    """`export`: where torch goes on with a guess, Mica says what is in the way."""
    return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes)


export_for_training = export


def register_dataclass(cls, *, serialized_type_name=None):
    """Let a dataclass be an input or output of exported programs: its fields are taken apart."""
    from mica.utils._pytree import register_dataclass

    register_dataclass(cls)


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Write a program to a file that `torch.export.load` of Mica reads."""
    from mica.export._files import save

    save(ep, f, extra_files)


def load(f, *, extra_files=None, expected_opset_version=None):
    """The program of a file that Mica's `torch.export.save` has written."""
    from mica.export._files import load

    return load(f, extra_files)
