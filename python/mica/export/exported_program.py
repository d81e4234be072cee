"""A program as a graph: its inputs and outputs, its weights, and the module that runs it."""

import dataclasses
import re

import mica
from mica.export import _guards
from mica.export._module_inputs import modules_as_nests
from mica.export.graph_signature import InputKind, OutputKind
from mica.fx._codegen import CodeGen, is_name
from mica.fx._pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule, _assign_attr
from mica.fx.node import Node, map_arg
from mica.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "default_decompositions"]


_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclasses.dataclass
class CallSpec:
    """How arguments and results are nested."""

    in_spec: TreeSpec
    out_spec: TreeSpec


@dataclasses.dataclass
class ModuleCallSignature:
    """The inputs and outputs of one module's call."""

    inputs: list
    outputs: list
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program by its path."""

    fqn: str
    signature: ModuleCallSignature | None = None


def default_decompositions():
    """The table of operators that are taken apart into torch's core operators. A composite that is removed from it stays
    whole."""
    from mica.export._core import core_table

    return core_table()


class _Nested(CodeGen):
    """Code whose arguments and results are nested as those of the module were, whatever the arguments are called."""

    def gen_fn_def(self, free_vars, maybe_return_annotation="", *, expanded_def=False):
        names = [name for name in free_vars if name != "self"]
        unpacked = f"\n    {', '.join(names)}, = self._flat_inputs(args, kwargs)" if names else ""
        return f"def forward(self, *args, **kwargs):{unpacked}"

    def generate_output(self, output_args):
        return f"return self._nested_output({output_args})"


class _ProgramModule(GraphModule):
    """An exported program as a module."""

    def _flat_inputs(self, args, kwargs):
        leaves, spec = tree_flatten(_in_order((args, kwargs), self._in_spec))
        _check_nesting(spec, self._in_spec)
        if self._checks:
            _guards.check(leaves, self._expected, self._ranges, self._relations)
        return leaves

    def _nested_output(self, leaves):
        return tree_unflatten(list(leaves), self._out_spec)


def _check_call(module, args, kwargs):
    """Raise ValueError where the arguments of a program's call are nested in another way than those of the export."""
    with modules_as_nests((args, kwargs)):
        _check_nesting(tree_flatten(_in_order((args, kwargs), module._in_spec))[1], module._in_spec)


def _in_order(value, spec):
    """A nest whose dicts have their keys in the order of a spec's."""
    children = spec.children_specs
    if spec.type is dict and type(value) is dict and value.keys() == set(spec.context):
        return {key: _in_order(value[key], child) for key, child in zip(spec.context, children, strict=True)}
    if spec.type in (list, tuple) and type(value) is spec.type and len(value) == len(children):
        return spec.type(_in_order(each, child) for each, child in zip(value, children, strict=True))
    return value


def _check_nesting(given, expected):
    names, wanted = (each.children_specs[1].context for each in (given, expected))
    if set(names) != set(wanted):
        raise ValueError(
            f"Ran into a kwarg keyword mismatch: Got the following keywords: {list(names)} but expected {list(wanted)}"
        )
    if given != expected:
        raise ValueError(
            "Trying to flatten user inputs with exported input tree spec:\n"
            f"{expected}\nbut actually got inputs with tree spec of:\n{given}.\nPlease check that the inputs have the "
            "same number and type of args and kwargs as the ones you used when tracing."
        )


class SpecViolationError(Exception):
    """A program whose graph, signature and tensors do not belong together."""


class ExportedProgram:
    """What `export` makes: a graph in terms of torch.ops.aten, with its weights as inputs."""

    def __init__(self, root, graph, graph_signature, state_dict, range_constraints, module_call_graph,
                 example_inputs=None, constants=None, *, training=False, verifiers=None, parameters=()):  # fmt: skip
        self._graph_module = GraphModule(root, graph)
        self._graph_signature, self._state_dict = graph_signature, state_dict
        self._range_constraints, self._module_call_graph = dict(range_constraints), module_call_graph
        self._example_inputs, self._constants = example_inputs, constants or {}
        self._training, self._parameter_names = training, list(parameters)
        self._verifiers = list(verifiers or ["TRAINING"])

    graph_module = property(lambda self: self._graph_module)
    graph = property(lambda self: self._graph_module.graph)
    graph_signature = property(lambda self: self._graph_signature)
    state_dict = property(lambda self: self._state_dict)
    constants = tensor_constants = property(lambda self: self._constants)
    range_constraints = property(lambda self: self._range_constraints)
    module_call_graph = property(lambda self: self._module_call_graph)
    dialect = property(lambda self: self._verifiers[0])

    @property
    def example_inputs(self):
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value):
        if value is not None:
            is_call = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], tuple)
            if not is_call or not isinstance(value[1], dict):
                raise ValueError(
                    "Example inputs should be a tuple containing example arguments (as a tuple), and example kwargs (as a "
                    "dictionary)."
                )
            in_spec = self.call_spec.in_spec
            _check_nesting(tree_flatten(_in_order(value, in_spec))[1], in_spec)
        self._example_inputs = value

    @property
    def shape_env(self):
        """The ShapeEnv, which has what is known of the open sizes; None if there are none."""
        for node in self.graph.nodes:
            for size in getattr(node.meta.get("val"), "shape", ()) if node.op == "placeholder" else ():
                if isinstance(size, mica.SymInt):
                    return size.node.shape_env
        return None

    def _argument_names(self):
        """The names of forward's arguments."""
        positional, named = self.call_spec.in_spec.children_specs
        args, kwargs = positional.children_specs, named.context
        given = self._module_call_graph[0].signature.forward_arg_names
        if not given or len(given) != len(args) + len(kwargs):
            known = self._parameter_names[: len(args)]
            given = [*known, *(f"arg_{i}" for i in range(len(known), len(args))), *kwargs]
        if (other := next((each for each in given if not is_name(each)), None)) is not None:
            raise ValueError(f"a program's code cannot name an argument {other!r}: it is no name in Python")
        return list(given)

    @property
    def call_spec(self):
        top = self._module_call_graph[0].signature
        return CallSpec(top.in_spec, top.out_spec)

    def named_parameters(self):
        for name in self._graph_signature.parameters:
            yield name, self._state_dict[name]

    def parameters(self):
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self):
        for name in self._graph_signature.buffers:
            yield name, self._state_dict[name] if name in self._state_dict else self._constants[name]

    def buffers(self):
        for _, value in self.named_buffers():
            yield value

    def _value(self, spec):
        return self._state_dict[spec.target] if spec.target in self._state_dict else self._constants[spec.target]

    def module(self, check_guards=True):
        """A module that runs the graph, with the weights as its parameters and buffers."""
        check_guards = check_guards and not _guards.is_for_patterns()
        root, graph, values = mica.nn.Module(), Graph(), {}
        for node in self.graph.nodes:
            if node.op == "get_attr":  # a graph of a branch or a loop
                setattr(root, node.target, getattr(self._graph_module, node.target))
        specs = {each.arg.name: each for each in self._graph_signature.input_specs}
        for spec in specs.values():
            if spec.kind is InputKind.BUFFER:
                _assign_buffer(root, spec.target, self._value(spec), spec.persistent)
            elif spec.kind is not InputKind.USER_INPUT:
                _assign_attr(self._value(spec), root, spec.target)
        expected = []
        for node in self.graph.nodes:
            spec = specs.get(node.name) if node.op == "placeholder" else None
            if spec is not None and spec.kind is not InputKind.USER_INPUT:
                values[node] = graph.create_node("get_attr", spec.target, (), {}, re.sub(r"\W", "_", spec.target))
            elif node.op == "output":
                self._write_changes(graph, node, values)
            else:
                values[node] = graph.node_copy(node, values.__getitem__)
                if spec is not None:
                    expected.append(node.meta.get("val"))
        guards, spec = self._input_guards(expected), self.call_spec
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        if check_guards and inputs:
            root._guards_fn = guards
            with graph.inserting_after(inputs[-1]):
                graph.create_node("call_module", "_guards_fn", tuple(inputs), {}, "_guards_fn")
        names = self._argument_names()
        graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, spec.in_spec, spec.out_spec)))
        made = _ProgramModule(root, graph)
        made._checks, made.training = check_guards, self._training
        made._expected, made._ranges, made._relations = guards.expected, guards.ranges, guards.relations
        made.register_forward_pre_hook(_check_call, with_kwargs=True)

        def refuse(mode=True):
            raise NotImplementedError("Calling train() or eval() is not supported yet: export the module in that mode")

        made.train, made.eval = refuse, lambda: refuse(False)
        return made

    def _input_guards(self, expected):
        """The module that compares inputs with those of the export."""
        env, ranges = self.shape_env, self._range_constraints
        relations = [] if env is None else [g.expr for g in env.guards if g.expr.free_symbols <= set(ranges)]
        paths = _guards.paths(self.call_spec.in_spec, self._argument_names())
        return _guards.GuardsFn(list(zip(paths, expected, strict=True)), ranges, relations)

    def _write_changes(self, graph, output, values):
        """The output of the module's graph: results that are new values of buffers and inputs are written into them."""
        inputs = {each.target: each.arg.name for each in self._graph_signature.input_specs if each.target is not None}
        placeholders, results = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}, []
        written = {}  # new value -> the tensor that has it: a result that is a changed input is that input
        for spec, result in zip(self._graph_signature.output_specs, output.args[0], strict=True):
            made = map_arg(result, values.__getitem__)
            if spec.kind in _CHANGES:
                name = inputs.get(spec.target, spec.target)
                written[made] = graph.create_node(
                    "call_function", mica.ops.aten.copy_.default, (values[placeholders[name]], made), {}, "copy_"
                )
            else:
                results.append(written.get(made, made) if isinstance(made, Node) else made)
        graph.output(tuple(results))

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def validate(self):
        """Raises SpecViolationError if the graph, its signature and its tensors do not belong together."""
        try:
            self.graph.lint()
        except RuntimeError as error:
            raise SpecViolationError(f"the graph is damaged: {error}") from error
        nodes = {node.name: node for node in self.graph.nodes}
        placeholders = [name for name, node in nodes.items() if node.op == "placeholder"]
        inputs = [spec.arg.name for spec in self._graph_signature.input_specs]
        if inputs != placeholders:
            raise SpecViolationError(f"the signature names the inputs {inputs}, and the graph has {placeholders}")
        for spec in self._graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT and not self._holds(spec.target):
                raise SpecViolationError(f"{spec.kind.name} {spec.target} is not in the state dict.")
        results = next(node.args[0] for node in nodes.values() if node.op == "output")
        outputs = [spec.arg.name for spec in self._graph_signature.output_specs]
        made = [getattr(each, "name", None) for each in results]
        if len(outputs) != len(made) or any(b is not None and a != b for a, b in zip(outputs, made, strict=True)):
            raise SpecViolationError(f"the signature names the outputs {outputs}, and the graph returns {made}")

    def _holds(self, target):
        return target in self._state_dict or target in self._constants

    def run_decompositions(self, decomp_table=None, decompose_custom_triton_ops=False):
        """The program in functional operators: composites and what the table names are taken apart.

        What changes buffers or inputs in place becomes further results, which the signature names.
        """
        from mica.export._decompose import decomposed, placed

        table = default_decompositions() if decomp_table is None else dict(decomp_table)
        graph, signature, constants, modules, calls = decomposed(self, table)
        placed(graph, signature)
        root = mica.nn.Module()
        for name, module in modules.items():
            root.add_module(name, module)
        return ExportedProgram(
            root, graph, signature, self._state_dict, self._range_constraints, calls,
            self._example_inputs, {**self._constants, **constants}, training=self._training, verifiers=["ATEN"],
            parameters=self._parameter_names,
        )  # fmt: skip

    def __str__(self):
        code = self._graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self._graph_signature).replace("\n", "\n    ")
        return f"ExportedProgram:\n    {code}\nGraph signature: {signature}\nRange constraints: {self._range_constraints}\n"

    __repr__ = __str__


def _assign_buffer(root, target, value, persistent):
    *path, name = target.split(".")
    for part in path:
        if not hasattr(root, part):
            setattr(root, part, mica.nn.Module())
        root = getattr(root, part)
    root.register_buffer(name, value, persistent is not False)
