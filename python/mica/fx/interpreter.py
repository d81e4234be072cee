"""Running a graph node by node."""

from mica.fx.graph import Graph
from mica.fx.node import map_aggregate, map_arg
from mica.fx.proxy import Proxy
from mica.fx.traceback import preserve_node_meta, set_current_meta

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph; every kind of node is a method to override."""

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph = module.graph if graph is None else graph
        self.env, self.name = {}, "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses = {}
        if garbage_collect_values:
            last = {}
            for node in reversed(self.graph.nodes):
                for used in node.all_input_nodes:
                    if used not in last:
                        last[used] = node
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """The output of the graph for these inputs."""
        self.env = dict(initial_env) if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    text = f"While executing {node.format_node()}"
                    error.args = (
                        (f"{error.args[0]}\n\n{text}", *error.args[1:])
                        if error.args and isinstance(error.args[0], str)
                        else (text, *error.args)
                    )
                raise
            if self.garbage_collect_values:
                for used in self.user_to_last_uses.get(node, ()):
                    self.env.pop(used, None)
            if node.op == "output":
                return self.graph.process_outputs(self.env[node]) if enable_io_processing else self.env[node]
        return None

    def boxed_run(self, args_list):
        """The output for a list of inputs, one for each placeholder. The list is emptied."""
        names = [node.target for node in self.graph.nodes if node.op == "placeholder"]
        if len(args_list) != len(names):
            wrong = "extra" if len(args_list) > len(names) else "missing"
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(names)} arguments for placeholders but received {len(args_list)} "
                f"({wrong} arguments)"
            )
        args = list(args_list)
        args_list.clear()
        return self.run(*args, enable_io_processing=False)

    def run_node(self, n):
        """The value of one node."""
        with set_current_meta(n, f"Interpreter_{type(self).__name__}"):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target, args, kwargs):
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target, args, kwargs):
        return self.fetch_attr(target)

    def call_function(self, target, args, kwargs):
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        owner, *rest = args
        return getattr(owner, target)(*rest, **kwargs)

    def call_module(self, target, args, kwargs):
        return (
            self.submodules[target](*args, **kwargs)
            if target in self.submodules
            else self.fetch_attr(target)(*args, **kwargs)
        )

    def output(self, target, args, kwargs):
        return args[0]

    def fetch_attr(self, target):
        value = self.module
        for i, part in enumerate(target.split(".")):
            if not hasattr(value, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(target.split('.')[: i + 1])}")
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(self, n):
        args, kwargs = self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)
        return _plain(args), _plain(kwargs)

    def map_nodes_to_values(self, args, n):
        def value(node):
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value)


def _plain(value):
    """Ordinary lists and dicts: functions may change what they are given."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if type(value) is tuple:
        return tuple(_plain(each) for each in value)
    return value


class Transformer(Interpreter):
    """Runs a graph with proxies, and so makes another graph."""

    def __init__(self, module):
        super().__init__(module)
        from mica.fx._symbolic_trace import Tracer

        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(tracer, graph):
                super().__init__()
                tracer.graph, tracer.tensor_attrs = graph, {}

            def is_leaf_module(tracer, m, module_qualified_name):
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target, args, kwargs):
        default = args[0] if args else None
        node = self.new_graph.placeholder(target, default_value=default) if args else self.new_graph.placeholder(target)
        return Proxy(node, self.tracer)

    def get_attr(self, target, args, kwargs):
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target, args, kwargs):
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target, args, kwargs):
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self):
        """The module with the graph that running this one made."""
        from mica.fx.graph_module import GraphModule

        with preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
        return GraphModule(self.module, self.new_graph)
