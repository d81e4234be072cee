"""The part of a program's graph that one module's calls are: its own graph, with its parameters and the modules that it
calls."""

import copy
import operator

import mica
from mica.export._state import copied
from mica.export.exported_program import _check_nesting, _in_order, _Nested
from mica.export.graph_signature import ConstantArgument
from mica.fx._pytree import tree_flatten_spec
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import Node, map_arg
from mica.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["InterpreterModule", "InterpreterModuleDispatcher", "ModulePart", "without_second_names"]


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


class _KeptModule(InterpreterModule):
    """A module that is called as the one that it was exported from."""

    def _flat_inputs(self, args, kwargs):
        leaves, spec = tree_flatten(_in_order((args, kwargs), self._in_spec))
        _check_nesting(spec, self._in_spec)
        return leaves

    def _nested_output(self, leaves):
        return tree_unflatten(list(leaves), self._out_spec)


class InterpreterModuleDispatcher(mica.nn.Module):
    """A module whose signature is kept and whose calls compute different things: each call runs the next graph."""

    def __init__(self, calls):
        super().__init__()
        first, *others = dict.fromkeys(calls)
        for each in others:
            _merged(first, each)
        for mine, theirs in ((self._parameters, first._parameters), (self._buffers, first._buffers)):
            mine.update(theirs)
        for name, each in first._modules.items():
            self.add_module(name, each)
        self.__dict__["_calls"], self._next = calls, 0
        self._type_name = calls[0]._type_name

    def forward(self, *args, **kwargs):
        made = self._calls[self._next](*args, **kwargs)
        self._next = (self._next + 1) % len(self._calls)
        return made

    def type_name(self):
        """The class of the module that it was exported from, as a text."""
        return self._type_name

    def call_modules(self):
        """The graphs, in the order of their calls."""
        return list(self._calls)


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


class ModulePart:
    """The graph of one module, made from nodes of the whole program's graph."""

    def __init__(self, program, fqn, depth):
        self.program, self.fqn, self.depth = program, fqn, depth
        self.graph, self.root, self.known, self._calls = Graph(), mica.nn.Module(), {}, {}
        self._kept = {}  # module's name -> {what its graph computes: where it is}
        self.placeholders = {}  # path of a parameter or buffer -> the program's name for it
        self._kept_calls = {}  # of modules with signatures: name -> nodes that call them
        self.signatures = {}  # call of a module -> how its arguments and results are nested, where that is kept
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
            keep_at(self.root, target, value if is_graph else self.own(value))
            self.known[node] = self.graph.create_node("get_attr", target, (), {}, target.replace(".", "_"))
        return self.known[node]

    def own(self, value):
        if id(value) not in self.copies:
            same = copied(value)
            is_parameter = isinstance(value, mica.nn.Parameter)
            self.copies[id(value)] = mica.nn.Parameter(same, value.requires_grad) if is_parameter else same
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
        for plain, calls in self._kept_calls.items():
            if len({node.target for node in calls}) > 1:
                modules = [_attribute(self.root, node.target) for node in calls]
                _replace(self.root, plain, InterpreterModuleDispatcher(modules))
                for node in calls:
                    node.target = plain

    def _add_call(self, fqn, nodes):
        number = self._calls.get(fqn, 0)  # a call that was left in between has its parts under further numbers
        self._calls[fqn] = number + 1
        inside, part = set(nodes), ModulePart(self.program, fqn, self.depth + 1)
        part.copies, part.signatures, part.placeholders = self.copies, self.signatures, self.placeholders
        reads = [each for node in nodes for each in node.all_input_nodes if each not in inside]
        reads = dict.fromkeys(node for node in reads if not part.is_own(node))
        results = [node for node in nodes if any(user not in inside for user in node.users)]
        signature = self.signatures.get(fqn)
        if signature is not None:
            given = self._take_kept(part, signature, reads)
        else:
            for node in reads:
                part.known[node] = part.graph.create_node("placeholder", node.name, (), {}, node.name)
                part.known[node].meta = copy.copy(node.meta)
            given = list(part.known)
        part.add(nodes)
        if signature is not None:
            part.return_kept(signature, results, self)
        else:
            values = tuple(part.known[node] for node in results)
            part.graph.output(values[0] if len(values) == 1 else values)
        target = fqn if not number else f"{fqn}@{number}" if "@" not in fqn else f"{fqn}.{number}"
        own = target[len(_plain(self.fqn)) + 1 :] if self.fqn and target.startswith(_plain(self.fqn) + ".") else target
        made = (InterpreterModule if signature is None else _KeptModule)(part.root, part.graph)
        if signature is not None:
            made._in_spec, made._out_spec = signature.in_spec, signature.out_spec
        made._type_name, made._likeness = _type_of(nodes[0], self.depth), _likeness(part.graph, part.root)
        known = self._kept.setdefault(_plain(fqn), {})
        if made._likeness in known:  # the same again: one module that is called twice
            own = known[made._likeness]
        else:
            known[made._likeness] = own
            keep_at(self.root, own, made)
        name = own.replace(".", "_").replace("@", "_")
        name = "self_1" if name == "self" else name  # the module is `self` in the code
        if signature is not None:
            self._call_kept(own, name, signature, given)
            return
        node = self.graph.create_node("call_module", own, tuple(self.value(each) for each in given), {}, name)
        if len(results) == 1:
            self.known[results[0]] = node
            node.meta["val"] = results[0].meta.get("val")
            return
        for i, result in enumerate(results):
            item = self.graph.create_node("call_function", operator.getitem, (node, i), {}, result.name)
            item.meta["val"] = result.meta.get("val")
            self.known[result] = item

    def computes(self, node):
        """Whether the graph has the value of a node of the program's. A number that follows from sizes of what it has is
        computed anew."""
        if node not in self.known:
            is_number = isinstance(node.meta.get("val"), (int, mica.SymInt, mica.SymBool, mica.SymFloat))
            if node.op != "call_function" or not is_number or not all(map(self.computes, node.all_input_nodes)):
                return False
            self.known[node] = self.graph.node_copy(node, self.value)
        return True

    # ---- calls whose arguments and results stay nested as they were

    def _named(self, argument):
        """The program's node of an argument of a signature; None if it is a constant, or if nothing computes it any more."""
        if isinstance(argument, ConstantArgument):
            return None
        return next((node for node in self.program.graph.nodes if self._called(node) == argument.name), None)

    def _called(self, node):
        return self.placeholders.get(node.target) if node.op == "get_attr" else node.name

    def _take_kept(self, part, signature, reads):
        """The placeholders of a module's graph, one for each leaf of its arguments; the program's nodes that are given."""
        given = []
        for argument in signature.inputs:
            node = self._named(argument)
            name = argument.name or "constant"
            made = part.graph.create_node("placeholder", name, (), {}, name)
            if node is not None:
                made.meta = copy.copy(node.meta)
                part.known.setdefault(node, made)
            given.append(node)
        missing = [node.name for node in reads if not part.computes(node)]
        if missing:
            raise NotImplementedError(
                f"unflatten: {part.fqn} reads {', '.join(missing)}, which are no arguments of its call. Export the program "
                "without its signature (preserve_module_call_signature)"
            )
        return given

    def return_kept(self, signature, results, around):
        """The output of the module's graph, one value for each leaf of its result."""
        nodes = [self._named(argument) for argument in signature.outputs]
        leaves = [each.value if isinstance(each, ConstantArgument) else node and self.value(node)
                  for each, node in zip(signature.outputs, nodes, strict=True)]  # fmt: skip
        hidden = [node.name for node in results if node not in nodes and not around.computes(node)]
        if hidden:
            raise NotImplementedError(
                f"unflatten: {', '.join(hidden)} of {self.fqn} are read outside of it, and are none of its results. Export "
                "the program without its signature (preserve_module_call_signature)"
            )
        self.graph.set_codegen(_Nested())
        self.graph.output(tuple(leaves))

    def _call_kept(self, own, name, signature, given):
        """The call: leaves are nested as the module takes them, and its result is taken apart."""
        leaves = [each.value if isinstance(each, ConstantArgument) else node and self.value(node)
                  for each, node in zip(signature.inputs, given, strict=True)]  # fmt: skip
        nest = self.graph.create_node(
            "call_function", tree_unflatten, (leaves, self._spec(signature.in_spec)), {}, "tree_unflatten"
        )
        args, kwargs = tree_unflatten(leaves, signature.in_spec)
        sides = [self.graph.create_node("call_function", operator.getitem, (nest, side), {}) for side in (0, 1)]
        node = self.graph.create_node(
            "call_module", own,
            tuple(self.graph.create_node("call_function", operator.getitem, (sides[0], i), {}) for i in range(len(args))),
            {key: self.graph.create_node("call_function", operator.getitem, (sides[1], key), {}) for key in kwargs}, name,
        )  # fmt: skip
        self._kept_calls.setdefault(own.partition("@")[0], []).append(node)
        flat = self.graph.create_node(
            "call_function", tree_flatten_spec, (node, self._spec(signature.out_spec)), {}, "tree_flatten_spec"
        )
        for i, argument in enumerate(signature.outputs):
            result = self._named(argument)
            if result is not None:
                item = self.graph.create_node("call_function", operator.getitem, (flat, i), {}, result.name)
                item.meta["val"] = result.meta.get("val")
                self.known[result] = item

    def _spec(self, spec):
        """A node that stands for a form of nests, which the module holds."""
        number = sum(name.startswith("_spec_") for name in vars(self.root))
        setattr(self.root, f"_spec_{number}", spec)
        return self.graph.create_node("get_attr", f"_spec_{number}")


def without_second_names(graph, signatures):
    """Let nodes read a tensor by its first name: after a change in place it goes on under the name of the change.

    What a module whose signature is kept returns has the name of the result, since another module may take its place.
    """
    returned = {each.name for signature in signatures for each in signature.outputs}
    for node in graph.nodes:
        if _is_its_argument(node) and node.name not in returned:
            node.replace_all_uses_with(node.args[0])


def _is_its_argument(node):
    """Whether the result of a call is the tensor that it was called with: it has changed it, or there was nothing to do."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return False
    schema = getattr(node.target, "_schema", None)
    first = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    if first is not None and first.is_write:
        return len(schema.returns) == 1
    old, new = node.args[0].meta.get("val"), node.meta.get("val")
    if not isinstance(old, mica.Tensor) or not isinstance(new, mica.Tensor):
        return False
    if node.target is mica.ops.aten.dropout.default:
        return not node.args[2]
    is_cast = getattr(getattr(node.target, "overloadpacket", None), "__name__", "") in ("to", "contiguous")
    return is_cast and (old.dtype, old.device, old.stride()) == (new.dtype, new.device, new.stride())


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


def keep_at(root, target, value):
    """Set an attribute of a module at a path. Modules that exist along the path are kept."""
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


def _replace(root, target, module):
    """Put a module at a path; other calls of the module that was there are no longer attributes."""
    *path, name = target.split(".")
    for part in path:
        root = getattr(root, part)
    for each in [each for each in root._modules if each.partition("@")[0] == name and each != name]:
        del root._modules[each]
    root.add_module(name, module)


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
