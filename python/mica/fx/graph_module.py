"""A module whose forward is the code of a graph."""

import copy
import linecache
import os
import sys
import traceback

from mica.fx._pytree_codegen import _PyTreeCodeGen
from mica.nn import Module

__all__ = ["GraphModule", "reduce_graph_module"]  # noqa: F822

# Attributes that a module has from its graph.
_OF_THE_GRAPH = ("_graph", "_code", "_lineno_map", "_prologue_start", "_in_spec", "_out_spec")
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


def _copy_attr(from_module, to_module, target):
    """Copy an attribute at a path, with the modules on the way."""
    *prefix, field = target.split(".")
    for part in prefix:
        source = getattr(from_module, part)
        present = getattr(to_module, part, None)
        if source is present:
            return
        if present is None:
            present = Module()
            setattr(to_module, part, present)
        from_module, to_module = source, present
    value = getattr(from_module, field)
    if field in from_module._buffers:
        to_module.register_buffer(field, value, field not in from_module._non_persistent_buffers_set)
    else:
        setattr(to_module, field, value)


def _assign_attr(from_obj, to_module, target):
    *prefix, field = target.split(".")
    for part in prefix:
        if not hasattr(to_module, part):
            setattr(to_module, part, Module())
        to_module = getattr(to_module, part)
    setattr(to_module, field, from_obj)


class _CodeOnlyModule(Module):
    """A module with the attributes of another, from which classes of packages copy themselves (torchvision's)."""

    def __init__(self, body):
        super().__init__()
        self.__dict__ = body


_sources = [0]


def _forward_from_src(src, globals, co_fields=None):
    """The function that source defines; tracebacks show its lines."""
    _sources[0] += 1
    name = f"<eval_with_key>.{_sources[0]}"
    if co_fields:
        name += f" from {co_fields['co_filename']}:{co_fields['co_firstlineno']} in {co_fields['co_name']}"
    linecache.cache[name] = (len(src), None, src.splitlines(True), name)
    table = dict(globals)
    exec(compile(src, name, "exec"), table)
    return table["forward"]


def _where(error):
    """The line of a graph's code that raised an error, and those around it; None if it was raised elsewhere."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if not frame.filename.startswith("<eval_with_key>"):
        return None
    lines, at = linecache.getlines(frame.filename), frame.lineno
    shown = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return (
        f"{shown}\nCall using an FX-traced Module, line {at} of the traced Module's generated forward function:\n"
        + "".join(lines[max(0, at - 2) : at])
        + "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n"
        + "".join(lines[at : at + 2])
    )


class GraphModule(Module):
    """A module that runs a graph. Changing the graph takes effect with `recompile`."""

    def __new__(cls, *args, **kwargs):
        # Every GraphModule has a class of its own, for its forward.
        own = (
            type(cls.__name__, (cls,), {"__module__": cls.__module__}) if not cls.__dict__.get("_is_own_class") else cls
        )
        own._is_own_class = True
        return super().__new__(own)

    def __init__(self, root, graph, class_name="GraphModule"):
        super().__init__()
        type(self).__name__ = type(self).__qualname__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module") and node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
            for target in sorted(
                (n.target for n in graph.nodes if n.op in ("get_attr", "call_module")), key=lambda t: t.count(".")
            ):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.meta = {}
        self.graph = graph
        self._tracer_cls = graph._tracer_cls

    @property
    def graph(self):
        return self._graph

    @graph.setter
    def graph(self, g):
        from mica.fx.graph import Graph

        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self):
        """The source of forward."""
        return self._code

    def recompile(self):
        """Make forward from the graph."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen) and codegen.pytree_info is not None:
            self.__dict__["_in_spec"] = codegen.pytree_info.in_spec
            self.__dict__["_out_spec"] = codegen.pytree_info.out_spec
        code = self._graph.python_code("self")
        self.__dict__.update(_code=code.src, _lineno_map=code._lineno_map, _prologue_start=code._prologue_start)
        type(self).forward = _forward_from_src(code.src, code.globals, self._graph._co_fields)
        return code

    def __call__(self, *args, **kwargs):
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            if (text := _where(error)) is None:
                raise
            print(text, file=sys.stderr)
            raise error.with_traceback(None) from error.__cause__

    def add_submodule(self, target, m):
        """Put a module at a path; returns whether it went there."""
        *prefix, field = target.split(".")
        module = self
        for part in prefix:
            inner = getattr(module, part, None)
            if inner is None:
                inner = Module()
                setattr(module, part, inner)
            if not isinstance(inner, Module):
                return False
            module = inner
        module.add_module(field, m)
        return True

    def delete_submodule(self, target):
        """Take a module away; returns whether it was there."""
        *prefix, field = target.split(".")
        module = self
        for part in prefix:
            module = getattr(module, part, None)
            if not isinstance(module, Module):
                return False
        if not isinstance(getattr(module, field, None), Module):
            return False
        delattr(module, field)
        return True

    def delete_all_unused_submodules(self):
        """Take away the modules that the graph does not call."""
        from mica.fx.graph import _has

        used = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used |= {".".join(parts[: i + 1]) for i in range(len(parts))}
                if node.op == "call_module" and _has(self, node.target):
                    used |= {f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules()}
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def print_readable(
        self,
        print_output=True,
        include_stride=False,
        include_device=False,
        colored=False,
        *,
        fast_sympy_print=False,
        expanded_def=False,
        additional_meta=None,
    ):
        """The code with the types of values and where nodes come from; printed, unless told not to."""
        from mica.fx._readable import readable

        options = {"include_stride": include_stride, "include_device": include_device, "colored": colored}
        options |= {"expanded_def": expanded_def, "additional_meta": additional_meta}
        text = readable(self, type(self).__name__, options)
        if print_output:
            print(text)
        return text

    def to_folder(self, folder, module_name="FxModule"):
        """Write the module as a package: its state and its code."""
        from mica import save

        os.makedirs(folder, exist_ok=True)
        save(self, os.path.join(folder, "module.pt"))
        with open(os.path.join(folder, "__init__.py"), "w") as file:
            file.write(
                "import os\n\nimport torch\n\n\n"
                f"def {module_name}():\n    return torch.load(os.path.join(os.path.dirname(__file__), 'module.pt'), weights_only=False)\n"
            )

    def __str__(self):
        return (
            f"{super().__str__()}\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"
        )

    # ---- copies and pickles: the graph is pickled as its nodes

    def __deepcopy__(self, memo):
        result = GraphModule.__new__(_base_class(self), self, self._graph)
        memo[id(self)] = result
        body = {key: value for key, value in self.__dict__.items() if key not in _OF_THE_GRAPH}
        _rebuild(result, copy.deepcopy(body, memo), copy.deepcopy(self._graph, memo), type(self).__name__)
        return result

    def __copy__(self):
        result = GraphModule.__new__(_base_class(self), self, self._graph)
        body = {key: value for key, value in self.__dict__.items() if key not in _OF_THE_GRAPH}
        _rebuild(result, body, copy.deepcopy(self._graph), type(self).__name__)
        return result

    def __reduce__(self):
        body = {key: value for key, value in self.__dict__.items() if key not in (*_OF_THE_GRAPH, "_tracer_cls")}
        rest = (self._graph._codegen, self._graph._co_fields)
        return _from_pickle, (_base_class(self), type(self).__name__, body, _nodes_as_rows(self._graph), *rest)


def _base_class(module):
    return next(cls for cls in type(module).__mro__ if not cls.__dict__.get("_is_own_class"))


def _rebuild(result, body, graph, class_name):
    type(result).__name__ = type(result).__qualname__ = class_name
    Module.__init__(result)
    result.__dict__.update(body)
    result.graph = graph
    return result


def _nodes_as_rows(graph):
    from mica.fx.node import map_arg

    number = {node: i for i, node in enumerate(graph.nodes)}
    as_index = lambda value: map_arg(value, lambda node: _Ref(number[node]))  # noqa: E731
    return [(n.op, n.name, n.target, as_index(n.args), as_index(n.kwargs), n.type) for n in graph.nodes]


class _Ref:
    """A node by its number, in a pickle."""

    def __init__(self, number):
        self.number = number


def _from_pickle(cls, class_name, body, rows, codegen=None, co_fields=None):
    from mica.fx.graph import Graph
    from mica.fx.node import map_aggregate

    graph, made = Graph(), []
    graph._codegen, graph._co_fields = codegen or graph._codegen, co_fields or {}
    as_node = lambda value: map_aggregate(value, lambda x: made[x.number] if isinstance(x, _Ref) else x)  # noqa: E731
    for op, name, target, args, kwargs, type_expr in rows:
        made.append(graph.create_node(op, target, as_node(args), as_node(kwargs), name, type_expr))
    return _rebuild(GraphModule.__new__(cls, None, graph), body, graph, class_name)


def __getattr__(name):
    if name == "reduce_graph_module":  # it traces, and tracers make graph modules
        from mica.fx._saved_modules import reduce_graph_module

        return reduce_graph_module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
