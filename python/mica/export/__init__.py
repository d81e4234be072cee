"""torch.export: a module as a graph in terms of torch.ops.aten, run once on example inputs."""

import contextlib
import dataclasses
from typing import NamedTuple

import mica
from mica.export._module_inputs import modules_as_nests
from mica.export._state import fake_modes, kept_attributes, original_state, real_ones_beside_fakes, unchanged
from mica.export.decomp_utils import CustomDecompTable
from mica.export.dynamic_shapes import (
    AdditionalInputs,
    Constraint,
    Dim,
    ShapesCollection,
    dims,
    marked_sizes,
    named_arguments,
    named_sizes,
    positional_names,
    sources,
)
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
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from mica.export.unflatten import FlatArgsAdapter, UnflattenedModule, unflatten
from mica.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = [
    "AdditionalInputs",
    "Constraint",
    "CustomDecompTable",
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "FlatArgsAdapter",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "ShapesCollection",
    "UnflattenedModule",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
]  # fmt: skip


def export(mod, args, kwargs=None, *, dynamic_shapes=None, strict=False, preserve_module_call_signature=(),
           prefer_deferred_runtime_asserts_over_guards=False):  # fmt: skip
    """The program of a module. Sizes are those of the example, apart from those that `dynamic_shapes` names.

    The module runs once. Where there are dynamic sizes it runs on fake tensors whose sizes are open, an error says which
    line relies on more than was said of them, and the graph is tried on the example beside the module.

    Args:
        mod: the module
        args, kwargs: an example of its inputs
        dynamic_shapes: which sizes are open, nested as the inputs are: {"x": {0: Dim("batch")}}
        strict: changes nothing: the module runs as Python either way
        preserve_module_call_signature: names of modules that keep their arguments and results in `unflatten`
        prefer_deferred_runtime_asserts_over_guards: what the program relies on between several sizes may be more than was said
            of them, and is asserted within the graph

    Example::

        program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
        torch.export.save(program, "model.pt2")
    """
    if not isinstance(mod, mica.nn.Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        from mica._dynamo.exc import UserError, UserErrorType

        text = f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}"
        raise UserError(UserErrorType.INVALID_INPUT, text)
    args, kwargs = tuple(args), dict(kwargs or {})
    with modules_as_nests((args, kwargs)), real_ones_beside_fakes(fake_modes(mod, args, kwargs)):
        wishes = _Wishes(preserve_module_call_signature, prefer_deferred_runtime_asserts_over_guards)
        return _export(mod, args, kwargs, dynamic_shapes, wishes)


class _Wishes(NamedTuple):
    """What the caller wants of the program."""

    kept: tuple  # names of modules that keep their arguments and results
    defers_guards: bool  # relations between sizes are asserted where the program runs


def _export(mod, args, kwargs, dynamic_shapes, wishes):
    values = named_arguments(mod.forward, args, kwargs)
    if isinstance(dynamic_shapes, AdditionalInputs):
        found = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
        program = _export(mod, args, kwargs, found, wishes)
        dynamic_shapes.verify(program)
        return program
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    elif dynamic_shapes is None:
        dynamic_shapes = marked_sizes(mod, args, kwargs)
    named = named_sizes(dynamic_shapes, values, mod.forward)
    with mica.random.fork_rng(devices=[]):  # the example's run draws none of the program's random numbers
        program, is_traced = _exported(mod, args, kwargs, named, values, wishes)
    if is_traced and not fake_modes(mod, args, kwargs):
        _compare(mod, program, args, kwargs)
    return program


def _copies(result):
    """The leaves of a result; its tensors may be buffers, which are put back."""
    return [leaf.detach().clone() if isinstance(leaf, mica.Tensor) else leaf for leaf in tree_leaves(result)]


def _compare(mod, program, args, kwargs):
    """The graph gives what the module gives."""
    leaves = tree_leaves((args, kwargs))
    with mica.random.fork_rng(devices=[]):  # with gradients, which hooks of the program's own ask for
        state = mica.get_rng_state()
        try:
            with unchanged(mod, leaves):
                theirs = _copies(program.module(check_guards=False)(*args, **kwargs))
        except Exception as error:
            if _fails(mod, args, kwargs):
                return  # what the example is refused for is asserted by the program, too
            raise RuntimeError(f"torch.export: the graph does not run on the example: {error}") from error
        mica.set_rng_state(state)
        with unchanged(mod, leaves), kept_attributes(mod, warns=False):
            ours = _copies(mod(*args, **kwargs))
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, mica.Tensor) and not (a.shape == b.shape and mica.allclose(a, b, 1e-3, 1e-4, equal_nan=True)):
            raise RuntimeError(
                "torch.export: the graph's result on the example is not the module's. The program computes in a way that "
                "tracing does not see"
            )


def _fails(mod, args, kwargs):
    """Whether the module itself refuses the example."""
    with unchanged(mod, tree_leaves((args, kwargs))), kept_attributes(mod, warns=False):
        try:
            mod(*args, **kwargs)
        except Exception:
            return True
    return False


def _names(value, name):
    """The names of the leaves of an argument: y, y_k, y_0."""
    from mica import _C
    from mica.export._module_inputs import named_state
    from mica.export._nodes import as_identifier

    if isinstance(value, (list, tuple)):
        keys = getattr(value, "_fields", range(len(value)))
        return [leaf for key, each in zip(keys, value, strict=True) for leaf in _names(each, f"{name}_{key}")]
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in _names(each, f"{name}_{key}")]
    if isinstance(value, _C.TensorBase):
        return [name]
    if isinstance(value, mica.nn.Module):
        return [f"{name}_{as_identifier(path)}" for path in named_state(value)]
    count = len(tree_flatten(value)[0])
    if dataclasses.is_dataclass(value):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        names = [leaf for key, each in fields.items() if each is not None for leaf in _names(each, f"{name}_{key}")]
        if len(names) == count and tree_flatten(value)[0] != [value]:
            return names
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def _exported(mod, args, kwargs, named, values, wishes):
    """(the program, whether it was run on fake tensors).

    Where sizes or numbers follow from data, fake tensors are needed. Where an operation does not work for open sizes,
    those that may be fixed are, and it is begun anew.
    """
    from mica._subclasses.fake_tensor import DataDependentOutputException
    from mica.export._data import DataDependentError, NeedsData, SizeOfData
    from mica.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if named:
        return _traced(mod, args, kwargs, named, values, wishes), True
    try:
        program = _run_once(mod, args, kwargs, {}, values, wishes)
        traced = _seen_below(mod, args, kwargs, values, program, wishes) if program._unknown else None
        return (program, False) if traced is None else (traced, True)
    except NeedsData:
        pass
    try:
        return _traced(mod, args, kwargs, {}, values, wishes), True
    except (DataDependentError, GuardOnDataDependentSymNode):
        raise
    except (NotImplementedError, RuntimeError, ValueError, IndexError) as error:
        # The example may be able to do what fake tensors cannot, as long as nobody asks for a size that data decide.
        try:
            return _run_once(mod, args, kwargs, {}, values, wishes, watches_sizes=True), False
        except (SizeOfData, DataDependentError) as refused:
            is_asked = isinstance(error, DataDependentOutputException) and isinstance(refused, DataDependentError)
            raise (refused if is_asked else error) from None


def _seen_below(mod, args, kwargs, values, program, wishes):
    """The program of a run on fake tensors, if that sees how constants of the run on the example are made; else None.

    A tensor that follows from the inputs by a call which nobody sees looks like any other that the module reads from
    outside. In a run on fake tensors it is one of them: there the program is refused, or has what the call is made of, as
    that of a derivative which the module takes.
    """
    from mica.export._data import UnseenError

    try:
        traced = _traced(mod, args, kwargs, {}, values, wishes)
    except UnseenError:
        raise
    except Exception:  # what fake tensors cannot do says nothing about the program
        return None
    return traced if traced._unknown < program._unknown else None


def _traced(mod, args, kwargs, named, values, wishes):
    """The program of a run on fake tensors."""
    from mica._subclasses.open_sizes import NeedsStatic

    presets, tried = {}, []
    while True:
        tried.append(dict(presets))
        try:
            return _run_once(mod, args, kwargs, named, values, wishes, presets)
        except NeedsStatic as need:
            presets |= need.presets
            if presets in tried:
                raise need.error from None


def _run_once(mod, args, kwargs, named, values, wishes, presets=None, watches_sizes=False):
    """The program of one run: on the example, or on fake tensors where there are `presets` for their sizes."""
    from mica._functions.extremes import recorded_extremes
    from mica.export._grad_regions import wrap_regions
    from mica.export._module_calls import ModuleCalls
    from mica.export._nodes import as_identifier
    from mica.export._open_inputs import OpenInputs
    from mica.export._record import Recorder

    state = original_state(mod)
    leaves, in_spec = tree_flatten((args, kwargs))
    names = [leaf for name, value in values.items() for leaf in _names(value, name)]
    opened = OpenInputs(leaves, named, sources(values), state.values(), presets) if presets is not None else None
    if opened is not None:
        opened.env.defers_guards = wishes.defers_guards
    recorder, specs = Recorder(None if opened is None else opened.env), []
    recorder.attributes, recorder.fakes = _tensor_attributes(mod), None if opened is None else opened.mode
    recorder.runs_again, recorder.watches_sizes = opened is None and not watches_sizes, watches_sizes
    constants, persistent = {}, set(state)
    for kind, prefix, values in (
        (InputKind.PARAMETER, "p_", mod.named_parameters(remove_duplicate=False)),
        (InputKind.BUFFER, "b_", mod.named_buffers(remove_duplicate=False)),
    ):
        for target, value in values:
            node = recorder.placeholder(prefix + as_identifier(target), value)
            keeps = None if kind is InputKind.PARAMETER else target in persistent
            specs.append(InputSpec(kind, TensorArgument(node.name), target, keeps))
            if keeps is False:
                constants[target] = value
    inputs, used = [], leaves if opened is None else opened.leaves
    for name, value in zip(names, used, strict=True):
        node = recorder.placeholder(name.lower(), value, is_input=True)
        if isinstance(value, mica.Tensor):
            argument = TensorArgument(node.name)
        else:
            is_open = isinstance(value, mica.SymInt)
            argument = SymIntArgument(node.name) if is_open else ConstantArgument(node.name, value)
        inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))
    was, has_gradients = mica.compiler._is_exporting_flag, mica.is_grad_enabled()
    mica.compiler._is_exporting_flag = True
    try:
        with contextlib.ExitStack() as stack:
            if opened is not None:
                stack.enter_context(opened.mode)
            else:
                stack.enter_context(unchanged(mod, leaves))
            assigned = stack.enter_context(kept_attributes(mod))
            calls = stack.enter_context(ModuleCalls(recorder, mod, wishes.kept))
            stack.enter_context(recorder)
            stack.enter_context(recorded_extremes)
            if opened is not None:
                stack.enter_context(opened.first_of_errors())
            inner_args, inner_kwargs = tree_unflatten(used, in_spec)
            results, out_spec = tree_flatten(mod(*inner_args, **inner_kwargs))
            results = recorder.assign(assigned(), results)
    finally:
        mica.compiler._is_exporting_flag = was
        mica._C._set_grad_enabled(has_gradients)
    if opened is not None:
        opened.check()
        opened.env.facts = None  # the trace stays as it is
    recorder.finish(results)
    wrap_regions(recorder.graph, recorder.modules)
    made = next(node for node in reversed(recorder.graph.nodes) if node.op == "output").args[0]
    outputs = [
        OutputSpec(OutputKind.USER_OUTPUT, _output_argument(node, value, i), None)
        for i, (node, value) in enumerate(zip(made, results, strict=True))
    ]
    for name in recorder.constants:
        target = recorder.targets.get(name, name.removeprefix("c_"))
        constants[target] = recorder.constant(name)
        specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), target))
    recorder.graph.lint()
    root = mica.nn.Module()
    for name, module in recorder.modules.items():
        root.add_module(name, module)
    order = [*positional_names(mod.forward, len(args)), *kwargs]
    top = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec, order))
    ranges = {} if opened is None else opened.ranges()
    program = ExportedProgram(
        root, recorder.graph, ExportGraphSignature([*specs, *inputs], outputs), state, ranges, [top, *calls.entries],
        (args, kwargs), constants, training=mod.training, parameters=positional_names(mod.forward, len(args)),
    )  # fmt: skip
    program._unknown = recorder.unknown
    return program


def _tensor_attributes(mod):
    """{id of a tensor: its path} for tensors that modules hold and that are neither parameters nor buffers."""
    found = {}
    for path, module in mod.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, mica.Tensor):
                found.setdefault(id(value), f"{path}.{name}" if path else name)
    return found


def _output_argument(node, value, i):
    if not hasattr(node, "name"):
        return ConstantArgument(f"output_{i}", node)
    kinds = {mica.SymInt: SymIntArgument, mica.SymFloat: SymFloatArgument, mica.SymBool: SymBoolArgument}
    return kinds.get(type(value), TensorArgument)(node.name)


def draft_export(mod, args, kwargs=None, *, dynamic_shapes=None, preserve_module_call_signature=(), strict=False,
                 prefer_deferred_runtime_asserts_over_guards=False):  # fmt: skip
    """The same as `export`. Where torch goes on with a guess, Mica raises an error that says what is in the way."""
    return export(
        mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict,
        preserve_module_call_signature=preserve_module_call_signature,
        prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards,
    )  # fmt: skip


export_for_training = export


def register_dataclass(cls, *, serialized_type_name=None):
    """Let a dataclass be an input or output of exported programs: its fields are taken apart."""
    from mica.utils._pytree import register_dataclass

    name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
    register_dataclass(cls, serialized_type_name=name)


def save(ep, f, *, extra_files=None, opset_version=None, pickle_protocol=2):
    """Write a program as a .pt2 archive, which torch reads too: to a path or a file."""
    from mica.export._archive import save

    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead."
        )
    save(ep, f, extra_files)


def load(f, *, extra_files=None, expected_opset_version=None):
    """The program of a .pt2 archive, torch's or Mica's. Nothing in the file is run."""
    from mica.export import _archive_read

    if _archive_read.is_archive(f) is None:
        raise RuntimeError(
            "torch.export.load reads .pt2 archives, which torch.export.save writes; this file is not one"
        )
    return _archive_read.load(f, extra_files)
