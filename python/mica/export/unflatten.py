"""Exported programs with the modules that they were made of: one graph for each, within that of its parent."""

import abc
import enum

from mica.export._grad_regions import inline_regions
from mica.export._module_parts import (
    InterpreterModule,
    InterpreterModuleDispatcher,
    ModulePart,
    without_second_names,
)
from mica.export.exported_program import _in_order, _Nested, _ProgramModule
from mica.fx.graph_module import _assign_attr as assign_attr
from mica.fx.node import map_arg
from mica.nn.modules.module import Module
from mica.utils._pytree import tree_flatten

__all__ = ["FlatArgsAdapter", "InterpreterModule", "InterpreterModuleDispatcher", "UnflattenedModule", "unflatten"]


class _AttrKind(enum.Enum):
    """What a value is to the module that gets it, as packages say it (torchao)."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    MODULE = "module"


def _assign_attr(from_obj, to_module, target, attr_kind, persistent=True):
    """Set a value of a module by its name with dots. Modules on the way there that are missing are made."""
    prefix, _, field = target.rpartition(".")
    for part in prefix.split(".") if prefix else ():
        if not hasattr(to_module, part):
            setattr(to_module, part, Module())
        to_module = getattr(to_module, part)
    if attr_kind is _AttrKind.PARAMETER:
        to_module.register_parameter(field, from_obj)
    elif attr_kind is _AttrKind.BUFFER:
        to_module.register_buffer(field, from_obj, persistent=persistent)
    else:
        setattr(to_module, field, from_obj)


class FlatArgsAdapter(abc.ABC):
    """Brings arguments that are nested in another way than those of the export into the order of these."""

    @abc.abstractmethod
    def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
        """The leaves in the order of `target_spec`."""


class UnflattenedModule(_ProgramModule):
    """A program as a module whose parts have the names that they had."""

    _type_name = None

    @property
    def graph_module(self):
        """The module itself, whose graph it is."""
        return self

    def type_name(self):
        """The class of the module that it was exported from, as a text."""
        return self._type_name

    def _flat_inputs(self, args, kwargs):
        leaves, spec = tree_flatten(_in_order((args, kwargs), self._in_spec))
        if spec == self._in_spec:
            return super()._flat_inputs(args, kwargs)
        if self.flat_args_adapter is None:
            raise TypeError(
                "There is no flat args adapter specified. Are you sure you are calling this with the right arguments? "
                f"They are nested as {spec}, and those of the export were as {self._in_spec}"
            )
        adapted = self.flat_args_adapter.adapt(
            target_spec=self._in_spec, input_spec=spec, input_args=leaves, metadata={}, obj=self
        )
        if len(adapted) != self._in_spec.num_leaves:
            raise TypeError(
                f"Flat args adaption failed, number of args mismatch Adapted: {len(adapted)} \n"
                f"Exported module: {self._in_spec.num_leaves}"
            )
        return list(adapted)


def unflatten(module, flat_args_adapter=None):
    """The program as a module with the modules that it was exported from, each with its own graph.

    Parameters and buffers are copies of the program's. A module whose calls compute the same is there once; of others,
    the second call is `name@1`, with the same parameters.
    """
    whole = module.module(check_guards=False)
    inline_regions(whole)
    part, nodes = ModulePart(whole, "", 0), []
    part.placeholders = {spec.target: spec.arg.name for spec in module.graph_signature.input_specs if spec.target}
    part.signatures = {each.fqn: each.signature for each in module.module_call_graph if each.fqn and each.signature}
    if part.signatures:
        without_second_names(whole.graph, part.signatures.values())
    for node in whole.graph.nodes:
        if node.op == "placeholder":
            part.known[node] = part.graph.node_copy(node, part.value)
        elif node.op == "output":
            part.add(nodes)
            part.graph.output(map_arg(node.args[0], part.value))
        elif node.op != "get_attr":
            nodes.append(node)
    for name, value in (*whole.named_parameters(remove_duplicate=False), *whole.named_buffers(remove_duplicate=False)):
        *path, last = name.split(".")
        owner = part.root
        for each in path:
            owner = getattr(owner, each, None)
        if owner is None or not hasattr(owner, last):
            assign_attr(part.own(value), part.root, name)
    part.graph.set_codegen(_Nested())
    made = UnflattenedModule(part.root, part.graph)
    for name in ("_in_spec", "_out_spec", "_expected", "_ranges", "_relations"):
        setattr(made, name, getattr(whole, name))
    made._checks = True
    made.flat_args_adapter, made.module_call_graph = flat_args_adapter, module.module_call_graph
    made.graph_signature = module.graph_signature
    roots = [stack for node in whole.graph.nodes if (stack := node.meta.get("nn_module_stack"))]
    made._type_name = next((kind for fqn, kind in roots[0].values() if not fqn), None) if roots else None
    for name, each in part.root._modules.items():  # those that no call is made of: only their parameters are there
        if name not in made._modules:
            made.add_module(name, each)
    return made
