"""Exported programs with the modules that they were made of: one graph for each, within that of its parent."""

import abc
import copy
import operator

import mica
from mica.export.exported_program import _in_order, _Nested, _ProgramModule
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule, _assign_attr
from mica.fx.node import map_arg
from mica.utils._pytree import tree_flatten

__all__ = ["FlatArgsAdapter", "InterpreterModule", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter(abc.ABC):
    """Brings arguments that are nested otherwise than those of the export into their order."""

    @abc.abstractmethod
    def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
        """The leaves in the order of `target_spec`."""


class InterpreterModule(GraphModule):
    """A module of the program: its own part of the graph, with its parameters and modules."""

    _type_name = _likeness = None

    def type_name(self):
        """The class of the module that it was exported from, as a text."""
        return self._type_name

    @property
    def graph_module(self):
        """The module itself, whose graph it is."""
        return self


class UnflattenedModule(_ProgramModule):
    """A program as a module whose parts have the names that they had."""

    _type_name = None

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
        adapted = self.flat_args_adapter.adapt(target_spec=self._in_spec, input_spec=spec, input_args=leaves, obj=self)
        if len(adapted) != self._in_spec.num_leaves:
            raise TypeError(
                f"Flat args adaption failed, number of args mismatch Adapted: {len(adapted)} \n"
                f"Exported module: {self._in_spec.num_leaves}"
            )
        return list(adapted)


def _path(node):
    """The modules that a node's call was made in, the outermost first; the root is not among them."""
    return [
        f"{fqn}@{key.rpartition('@')[2]}" if "@" in key else fqn
        for key, (fqn, _) in node.meta.get("nn_module_stack", {}).items()
        if fqn
    ]


def _plain(fqn):
    """The name of a module without the number of its call."""
    return fqn.partition("@")[0]


class _Part:
    """The graph of one module, made from nodes of the whole program's graph."""

    def __init__(self, program, fqn, depth):
        self.program, self.fqn, self.depth = program, fqn, depth
        self.graph, self.root, self.known, self._calls = Graph(), mica.nn.Module(), {}, {}
        self._kept = {}  # module's name -> {what its graph computes: where it is}
        self.copies = {}  # of the program's tensors: what is trained or counted afterwards is the module's own

    def is_own(self, node):
        """Whether a node is an attribute that belongs to the module."""
        if node.op != "get_attr":
            return False
        is_graph = isinstance(_attribute(self.program, node.target), GraphModule)
        return is_graph or not self.fqn or node.target.startswith(_plain(self.fqn) + ".")

    def value(self, node):
        """The node that stands for one of the program's."""
        if node not in self.known:
            value = _attribute(self.program, node.target)
            is_graph = isinstance(value, GraphModule)
            target = node.target if is_graph or not self.fqn else node.target[len(_plain(self.fqn)) + 1 :]
            _keep(self.root, target, value if is_graph else self.own(value))
            self.known[node] = self.graph.create_node("get_attr", target, (), {}, target.replace(".", "_"))
        return self.known[node]

    def own(self, value):
        if id(value) not in self.copies:
            copied = value.detach().clone()
            is_parameter = isinstance(value, mica.nn.Parameter)
            self.copies[id(value)] = mica.nn.Parameter(copied, value.requires_grad) if is_parameter else copied
        return self.copies[id(value)]

    def add(self, nodes):
        """The nodes of the module's own calls, and one node for each call of a module within it."""
        start = 0
        while start < len(nodes):
            path = _path(nodes[start])[self.depth :]
            if not path:
                self.known[nodes[start]] = self.graph.node_copy(nodes[start], self.value)
                start += 1
                continue
            end = start
            while end < len(nodes) and _path(nodes[end])[self.depth :][:1] == path[:1]:
                end += 1
            self._add_call(path[0], nodes[start:end])
            start = end

    def _add_call(self, fqn, nodes):
        number = self._calls.get(fqn, 0)  # a call that was left in between has its parts under further numbers
        self._calls[fqn] = number + 1
        inside, part = set(nodes), _Part(self.program, fqn, self.depth + 1)
        part.copies = self.copies
        reads = [each for node in nodes for each in node.all_input_nodes if each not in inside]
        for node in dict.fromkeys(node for node in reads if not part.is_own(node)):
            part.known[node] = part.graph.create_node("placeholder", node.name, (), {}, node.name)
            part.known[node].meta = copy.copy(node.meta)
        given = list(part.known)
        part.add(nodes)
        results = [node for node in nodes if any(user not in inside for user in node.users)]
        values = tuple(part.known[node] for node in results)
        part.graph.output(values[0] if len(values) == 1 else values)
        target = fqn if not number else f"{fqn}@{number}" if "@" not in fqn else f"{fqn}.{number}"
        own = target[len(_plain(self.fqn)) + 1 :] if self.fqn and target.startswith(_plain(self.fqn) + ".") else target
        made = InterpreterModule(part.root, part.graph)
        made._type_name, made._likeness = _type_of(nodes[0], self.depth), _likeness(part.graph, part.root)
        known = self._kept.setdefault(_plain(fqn), {})
        if made._likeness in known:  # the same again: one module that is called twice
            own = known[made._likeness]
        else:
            known[made._likeness] = own
            _keep(self.root, own, made)
        name = own.replace(".", "_").replace("@", "_")
        name = "self_1" if name == "self" else name  # the module is `self` in the code
        node = self.graph.create_node("call_module", own, tuple(self.value(each) for each in given), {}, name)
        if len(results) == 1:
            self.known[results[0]] = node
            node.meta["val"] = results[0].meta.get("val")
            return
        for i, result in enumerate(results):
            item = self.graph.create_node("call_function", operator.getitem, (node, i), {}, result.name)
            item.meta["val"] = result.meta.get("val")
            self.known[result] = item


def _type_of(node, depth):
    """The class of the module that a node's call was made in, at a depth below the root."""
    stack = [kind for fqn, kind in node.meta.get("nn_module_stack", {}).values() if fqn]
    return stack[depth] if depth < len(stack) else None


def _likeness(graph, root):
    """What a graph computes, as a key: graphs of equal keys compute the same of the same inputs."""
    places, rows = {node: i for i, node in enumerate(graph.nodes)}, []
    for node in graph.nodes:
        target = node.target
        if node.op == "call_module":
            target = _attribute(root, target)._likeness
        elif node.op == "placeholder":
            target = ""
        args = map_arg((node.args, dict(node.kwargs)), lambda each: ("node", places[each]))
        rows.append((node.op, str(target), str(args)))
    return tuple(rows)


def _attribute(module, target):
    for name in target.split("."):
        module = getattr(module, name)
    return module


def _keep(root, target, value):
    """Let a module have an attribute at a path; modules that are there already keep what they have."""
    *path, name = target.split(".")
    for part in path:
        if getattr(root, part, None) is None:
            root.add_module(part, mica.nn.Module())
        root = getattr(root, part)
    there = root._modules.get(name)
    if isinstance(value, mica.nn.Module):
        root.add_module(name, value if there is None else _merged(value, there))
    elif isinstance(value, mica.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value)


def _merged(new, old):
    """A module with what another one in its place has held: parameters and buffers, and modules that are called."""
    for mine, theirs in ((new._parameters, old._parameters), (new._buffers, old._buffers)):
        for name, value in theirs.items():
            mine.setdefault(name, value)
    for name, module in old._modules.items():
        mine = new._modules.get(name)
        if mine is None:
            new._modules[name] = module
        elif isinstance(module, GraphModule) and not isinstance(mine, GraphModule):
            new._modules[name] = _merged(module, mine)
        else:
            _merged(mine, module)
    return new


def unflatten(module, flat_args_adapter=None):
    """The program as a module with the modules that it was exported from, each with its own graph.

    Parameters and buffers are copies of the program's. A module whose calls compute the same is there once; of others,
    the second call is `name@1`, with the same parameters.
    """
    whole = module.module()
    part, nodes = _Part(whole, "", 0), []
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
            _assign_attr(part.own(value), part.root, name)
    part.graph.set_codegen(_Nested())
    made = UnflattenedModule(part.root, part.graph)
    for name in ("_in_spec", "_out_spec", "_expected", "_ranges", "_checks", "_relations"):
        setattr(made, name, getattr(whole, name))
    made.flat_args_adapter, made.module_call_graph = flat_args_adapter, module.module_call_graph
    made.graph_signature = module.graph_signature
    roots = [stack for node in whole.graph.nodes if (stack := node.meta.get("nn_module_stack"))]
    made._type_name = next((kind for fqn, kind in roots[0].values() if not fqn), None) if roots else None
    for name, each in part.root._modules.items():  # those that no call is made of: only their parameters are there
        if name not in made._modules:
            made.add_module(name, each)
    return made
