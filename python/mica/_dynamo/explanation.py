"""What a compiled call ran: mica.explain(compiled, *args) and torch._dynamo.explain(f)(*args)."""

from mica import _C


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
        return f"{said}\n{self.text}".rstrip()

    __repr__ = __str__


def explain_call(function, *args, **kwargs):
    """Call a function as a compiled one and say what ran."""
    inner = getattr(function, "_torchdynamo_orig_callable", None) or getattr(function, "_orig_mod", function)
    _C._flush_recording()
    before = _C._recording_counts()
    _C._explain_recording()
    try:
        result = _C._CompiledCall(inner)(*args, **kwargs)
    finally:
        text = _C._recording_explanation()
    counts = {name: value - before[name] for name, value in _C._recording_counts().items()}
    replayed = getattr(function, "_captured", None)
    if replayed is not None and hasattr(replayed, "reasons"):
        text = f"{replayed}\n{text}"
    return CompiledExplanation(text, counts, result)
