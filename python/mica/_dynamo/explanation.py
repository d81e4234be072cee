"""What a compiled call ran, mica.explain(compiled, *args), and which graphs a function makes,
torch._dynamo.explain(f)(*args)."""

import dataclasses

from mica import _C
from mica.compiler import _running


class CompiledExplanation:
    """Prints what every flush of a call ran, and counts it.

    graph_count, graph_break_count and op_count are torch's names: flushes, those before the end, and calls of kernels.
    """

    def __init__(self, text, counts, result):
        self.text, self.counts, self.result = text, counts, result
        self.graph_count = counts["flushes"]
        self.graph_break_count = max(counts["flushes"] - 1, 0)
        self.op_count = counts["calls"]
        flushes = [line for line in text.splitlines() if line.startswith("flush at ")]
        self.break_reasons = [line for line in flushes if not line.startswith("flush at the end:")]

    def __str__(self):
        c = self.counts
        said = (
            f"{c['calls']} calls of kernels were put off and ran as {c['loops']} loops in {c['flushes']} flushes; "
            f"{c['dead']} were not needed; {c['bytes_kept_out_of_memory']} bytes never reached memory"
        )
        if c["generated"]:
            said += f"; {c['generated']} loops ran as code that was made for them"
        if c["bytes_of_arranged_weights"]:
            said += (
                f"; {c['bytes_of_arranged_weights']} bytes of weights are kept in the order in which kernels read them"
            )
        return f"{said}\n{self.text}".rstrip()

    __repr__ = __str__


def explain_call(function, *args, **kwargs):
    """Call a function as a compiled one and say what ran."""
    inner = _running.innermost_fn(function)
    inner = getattr(inner, "_orig_mod", inner)
    _C._flush_recording()
    before = _C._recording_counts()
    _C._explain_recording()
    try:
        result = _C._CompiledCall(inner)(*args, **kwargs)
    finally:
        text = _C._recording_explanation()
    after = _C._recording_counts()
    counts = {name: value - before[name] for name, value in after.items()}
    counts["bytes_of_arranged_weights"] = after["bytes_of_arranged_weights"]
    replayed = _replayed(function)
    if replayed is not None:
        text = f"{replayed}\n{text}"
    return CompiledExplanation(text, counts, result)


def _replayed(function):
    """What replays calls of a compiled function; None where nothing does yet."""
    call = getattr(function, "_compiled_call", None) or getattr(function, "forward", None)
    for each in (getattr(function, "_captured", None), getattr(call, "replayed", None)):
        if hasattr(each, "reasons"):
            return each
    return None


@dataclasses.dataclass
class ExplainOutput:
    """The graphs that a backend of one's own is handed for a call, and why each but the last ends where it does."""

    graphs: list
    graph_count: int
    graph_break_count: int
    break_reasons: list
    op_count: int
    ops_per_graph: list = None
    out_guards: list = None
    compile_times: str = None

    def __str__(self):
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for i, each in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", f"    Reason: {each.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in each.user_stack]
        lines += ["Ops per Graph:"]
        for i, ops in enumerate(self.ops_per_graph or [], 1):
            lines += [f"  Ops {i}:", *(f"    {op}" for op in ops)]
        return "\n".join(lines) + "\n"


def explain_graphs(function, *args, **kwargs):
    """Call a function with a backend that collects its graphs, and describe them.

    There are no guards: Python runs on every call.
    """
    from mica._dynamo.capture import Captured
    from mica._dynamo.external_utils import innermost_fn

    graphs = []

    def backend(module, inputs):
        if any(node.op.startswith("call_") for node in module.graph.nodes):
            graphs.append(module)
        return module.forward

    Captured(innermost_fn(getattr(function, "_orig_mod", function)), backend)(*args, **kwargs)
    ops = [[node.target for node in each.graph.nodes if node.op == "call_function"] for each in graphs]
    reasons = [each.compile_subgraph_reason for each in graphs if each.compile_subgraph_reason.graph_break]
    return ExplainOutput(graphs, len(graphs), len(graphs) - 1, reasons, sum(map(len, ops)), ops, [], "")
