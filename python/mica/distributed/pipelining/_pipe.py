"""Cutting a model into stages: `pipeline` records its graph and cuts it where the program says."""

import enum
from dataclasses import dataclass

from mica import fx, nn
from mica.distributed.pipelining.stage import PipelineStage

__all__ = ["Pipe", "SplitPoint", "pipe_split", "pipeline"]


class SplitPoint(enum.Enum):
    """Where a stage ends: before a module inside the model, or after it."""

    BEGINNING = 1
    END = 2


_recording = []  # the active tracers


def pipe_split():
    """Ends a stage here, in the forward of a model that `pipeline` cuts; otherwise it does nothing."""
    if _recording:
        _recording[-1].create_proxy("call_function", pipe_split, (), {})


class _Tracer(fx.Tracer):
    """Records a model, with marks where it is to be cut."""

    def __init__(self, split_spec):
        super().__init__()
        self._split_spec, self._met = split_spec, set()

    def is_leaf_module(self, m, module_qualified_name):
        inside = any(name.startswith(f"{module_qualified_name}.") for name in self._split_spec)
        return not inside and super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m, forward, args, kwargs):
        name = self.path_of_module(m)
        point = self._split_spec.get(name)
        self._met.add(name)
        if point is SplitPoint.BEGINNING:
            pipe_split()
        result = super().call_module(m, forward, args, kwargs)
        if point is SplitPoint.END:
            pipe_split()
        return result

    def trace(self, root, concrete_args=None):
        _recording.append(self)
        try:
            return super().trace(root, concrete_args)
        finally:
            _recording.pop()


@dataclass
class PipeInfo:
    """The facts about a model that was cut."""

    graph: fx.Graph
    num_stages: int
    has_loss_and_backward: bool = False


class Pipe(nn.Module):
    """A model that is cut into stages: modules `submod_0`, `submod_1`, ... of `split_gm`."""

    def __init__(self, traced, stages, input_names):
        super().__init__()
        self.split_gm = nn.Module()
        for number, stage in enumerate(stages):
            self.split_gm.add_module(f"submod_{number}", stage)
        self._graph, self.num_stages, self._input_names = traced.graph, len(stages), input_names

    def forward(self, *args, **kwargs):
        """All stages, one after the other, in this process. The outputs are a tuple, as torch's are."""
        named = dict(zip(self._input_names, args, strict=False)) | kwargs
        values = tuple(named[name] for name in self._input_names if name in named)
        for number in range(self.num_stages):
            values = self.get_stage_module(number)(*values)
            values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
        return values

    def get_stage_module(self, stage_idx):
        """The module of a stage."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return getattr(self.split_gm, f"submod_{stage_idx}")

    def info(self):
        """The graph and the number of stages."""
        return PipeInfo(self._graph, self.num_stages)

    def build_stage(self, stage_index, device, group=None):
        """The stage of a number, for a schedule."""
        module = self.get_stage_module(stage_index).to(device)
        return PipelineStage(module, stage_index, self.num_stages, device, group=group)

    def print_readable(self):
        """Prints the code of all stages."""
        for number in range(self.num_stages):
            self.get_stage_module(number).print_readable()


def pipeline(module, mb_args, mb_kwargs=None, split_spec=None, split_policy=None):
    """Cuts a model into stages, at its `pipe_split()` calls and where `split_spec` says; `mb_args` are those of a microbatch.

    The model is recorded by torch.fx. What a later stage needs goes through all stages in between.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    spec = dict(split_spec or {})
    names = {name for name, _ in module.named_modules()}
    for name, point in spec.items():
        if name not in names:
            raise AttributeError(f"Specified target {name} referenced in split_spec, which is no module of the model")
        if not isinstance(point, SplitPoint):
            raise ValueError(f"Unknown split point type: {point}")
    tracer = _Tracer(spec)
    left_out = _left_out(module, mb_args, mb_kwargs)
    graph = tracer.trace(module, left_out)
    for node in graph.find_nodes(op="placeholder"):
        node.args = ()  # the given arguments count; defaults are values by now
        if node.target.rpartition("_")[0] in left_out:
            _erase_users(graph, node)
    traced = fx.GraphModule(tracer.root, graph)
    for name in spec:
        if name not in tracer._met:
            raise RuntimeError(f"the model does not call {name}, before or after which it is to be cut")
    if split_policy is not None:
        traced = split_policy(traced)
    stages, inputs = _cut(traced)
    made = Pipe(traced, stages, inputs)
    made.train(module.training)
    return made


def _erase_users(graph, node):
    """Erase the users of an argument that is left out: they only assert that nobody gives it."""
    for user in list(node.users):
        _erase_users(graph, user)
        graph.erase_node(user)


def _left_out(module, args, kwargs):
    """Arguments of forward that have a default and are not given: they are that default."""
    import inspect

    given = dict(kwargs or {})
    parameters = [
        p
        for p in inspect.signature(module.forward).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return {p.name: p.default for p in parameters[len(args) :] if p.name not in given and p.default is not p.empty}


def _cut(traced):
    """(a module for each stage, the names of the model's inputs)"""
    stage_of, current, inputs = {}, 0, []
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target is pipe_split:
            current += 1
        elif node.op == "placeholder":
            stage_of[node] = 0
            if node.users:
                inputs.append(node.target)
        elif node.op != "output":
            stage_of[node] = current
    count = current + 1
    output = next(node for node in traced.graph.nodes if node.op == "output")
    last_use = {}
    for node, stage in stage_of.items():
        if node.op == "get_attr":
            continue
        later = [count - 1 if user is output else stage_of[user] for user in node.users]
        last_use[node] = max([stage, *later])
    nodes = list(stage_of)
    return [_stage(traced, nodes, stage_of, last_use, number, count, output) for number in range(count)], inputs


def _stage(traced, nodes, stage_of, last_use, number, count, output):
    """The module of one stage: it takes what earlier ones hand on, and gives what later ones need."""
    graph, known = fx.Graph(), {}

    def value(node):
        if node not in known and node.op == "get_attr":
            known[node] = graph.node_copy(node)  # a parameter is read in the stage that uses it
        return known[node]

    for node in nodes:
        if node.op == "placeholder" and number == 0:
            if node.users:
                known[node] = graph.placeholder(node.target)
        elif node.op != "get_attr" and stage_of[node] < number <= last_use[node]:
            known[node] = graph.placeholder(node.name)
    for node in nodes:
        if stage_of[node] == number and node.op not in ("placeholder", "get_attr"):
            known[node] = graph.node_copy(node, value)
    if number == count - 1:
        graph.output(fx.node.map_arg(output.args[0], value))
    else:
        handed = [known[n] for n in nodes if n.op != "get_attr" and stage_of[n] <= number < last_use[n] and n in known]
        graph.output(handed[0] if len(handed) == 1 else tuple(handed))
    return fx.GraphModule(traced, graph)
