"""TORCH_LOGS and set_logs: which reports of graphs are written to the standard error, by torch's names.

Names of torch's are taken, others are an error. Those in WRITTEN report something here; the other artifacts belong to
parts of torch's compiler that Mica does not have, and stay silent.
"""

import logging
import os
import sys
import time

__all__ = ["WRITTEN", "getArtifactLogger", "set_logs", "warning_once"]

_SHAPES = ("torch.fx.experimental.symbolic_shapes", "torch.fx.experimental.sym_node")
LOGS = {"torch": ("torch",), "dynamo": ("torch._dynamo", *_SHAPES), "dynamic": _SHAPES, "autograd": ("torch.autograd",),
        "aot": ("torch._functorch.aot_autograd",), "inductor": ("torch._inductor",), "onnx": ("torch.onnx",),
        "fake_tensor": ("torch._subclasses.fake_tensor",), "export": ("torch.export", *_SHAPES),
        "distributed": ("torch.distributed", "torch.nn.parallel.distributed"), "c10d": ("torch.distributed.distributed_c10d",),
        "ddp": ("torch.nn.parallel.distributed",), "fsdp": ("torch.distributed.fsdp",), "pp": ("torch.distributed.pipelining",),
        "dtensor": ("torch.distributed.tensor",), "cache": ("torch._inductor.remote_cache",),
        "async_compile": ("torch._inductor.async_compile",), "native_dsl": ("torch._native",)}  # fmt: skip
ARTIFACTS = frozenset(
    [
        "annotation",
        "aot_graphs",
        "aot_graphs_effects",
        "aot_joint_graph",
        "auto_chunker",
        "autotuning",
        "benchmarking",
        "bytecode",
        "caching",
        "compiled_autograd",
        "compiled_autograd_verbose",
        "compute_dependencies",
        "cudagraph_static_inputs",
        "cudagraphs",
        "ddp_graphs",
        "fusion",
        "graph",
        "graph_breaks",
        "graph_code",
        "graph_code_verbose",
        "graph_region_expansion",
        "graph_sizes",
        "guards",
        "hierarchical_compile",
        "incremental",
        "inductor_metrics",
        "ir_post_fusion",
        "ir_pre_fusion",
        "kernel_code",
        "loop_ordering",
        "loop_tiling",
        "node_runtime_estimation",
        "not_implemented",
        "onnx_diagnostics",
        "output_code",
        "overlap",
        "overlap_scheduling",
        "perf_hints",
        "post_grad_graphs",
        "pre_grad_graphs",
        "recompiles",
        "recompiles_verbose",
        "schedule",
        "side_effects",
        "sym_node",
        "trace_bytecode",
        "trace_call",
        "trace_shape_events",
        "trace_source",
        "verbose_guards",
    ]
)
WRITTEN = frozenset(["graph", "graph_breaks", "graph_code", "graph_sizes", "recompiles"])
_on, _levels, _seen = set(), {}, set()


class _Formatter(logging.Formatter):
    """Every line begins as torch's do: level, time, process, place, artifact."""

    def format(self, record):
        when = time.strftime("%m%d %H:%M:%S", time.localtime(record.created)) + f".{int(record.msecs):03d}000"
        level = "V" if record.levelno <= logging.DEBUG else record.levelname[0]
        artifact = getattr(record, "artifact", None)
        head = f"{level}{when} {os.getpid()} {record.filename}:{record.lineno}]" + (
            f" [__{artifact}]" if artifact else ""
        )
        return "\n".join(f"{head} {line}" for line in record.getMessage().split("\n"))


class _Stream(logging.StreamHandler):
    """Writes to whatever sys.stderr is at the time of writing."""

    def emit(self, record):
        self.stream = sys.stderr
        super().emit(record)


def _handled(name):
    logger = logging.getLogger(name)
    if not any(isinstance(each, _Stream) for each in logger.handlers):
        handler = _Stream()
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
        logger.propagate = False
    return logger


def is_on(artifact):
    """Whether a report was asked for."""
    return artifact in _on


def write(artifact, text):
    """Write a report, if it was asked for."""
    if artifact in _on:
        _handled(f"torch.__{artifact}").debug(text, extra={"artifact": artifact}, stacklevel=2)


def getArtifactLogger(module_qname, artifact_name):
    """The logger of an artifact, which writes while the artifact is on."""
    if artifact_name not in ARTIFACTS:
        raise ValueError(f"Artifact name: {artifact_name!r} not registered")
    logger = _handled(f"{module_qname}.__{artifact_name}")
    logger.setLevel(logging.DEBUG if artifact_name in _on else logging.CRITICAL)
    return logger


def warning_once(logger_obj, *args, **kwargs):
    """A warning that is written the first time only."""
    if (key := (id(logger_obj), args)) not in _seen:
        _seen.add(key)
        logger_obj.warning(*args, **kwargs)


def _set(levels, artifacts):
    for name in _levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    _levels.clear()
    _levels.update(levels)
    for name, level in levels.items():
        _handled(name).setLevel(level)
    _on.clear()
    _on.update(artifacts)
    for artifact in artifacts:
        _handled(f"torch.__{artifact}").setLevel(logging.DEBUG)


def set_logs(*, all=None, modules=None, **names):
    """Choose what is logged: a level for each component, True for each artifact. Everything else is off."""
    levels, artifacts = {}, set()
    for name, value in {**names, **(modules or {})}.items():
        if name in ARTIFACTS:
            if not isinstance(value, bool):
                raise ValueError(f"Expected bool to enable artifact {name}, received {value}")
            artifacts |= {name} if value else set()
        elif name in LOGS or (modules and name in modules):
            if value is not None and (value not in logging._levelToName or isinstance(value, bool)):
                raise ValueError(f"Unrecognized log level for log {name}: {value}")
            levels |= {} if value is None else dict.fromkeys(LOGS.get(name, (name,)), value)
        else:
            raise ValueError(f"Unrecognized log or artifact name passed to set_logs: {name}")
    if all is not None:
        levels = {each: all for names in LOGS.values() for each in names} | levels
    _set(levels, artifacts)


def _is_module(name):
    import importlib.util

    try:
        return importlib.util.find_spec(name.replace("torch", "mica", 1)) is not None
    except (ImportError, ValueError):
        return False


def _from_text(text):
    """Set what TORCH_LOGS says: names after commas, with + for more and - for less."""
    levels, artifacts = {}, set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, level = part.lstrip("+-"), {"+": logging.DEBUG, "-": logging.ERROR}.get(part[0], logging.INFO)
        if name == "help":
            print(f"TORCH_LOGS: logs {', '.join(sorted(LOGS))}; artifacts that Mica writes: {', '.join(sorted(WRITTEN))}",
                  file=sys.stderr)  # fmt: skip
        elif name == "all":
            levels |= {each: level for names in LOGS.values() for each in names}
        elif name in ARTIFACTS:
            artifacts |= set() if part[0] == "-" else {name}
        elif name in LOGS:
            levels |= dict.fromkeys(LOGS[name], level)
            if name == "dynamo" and level == logging.DEBUG:
                artifacts |= {"graph_breaks", "graph_code", "recompiles"}
        elif "." in name and _is_module(name):
            levels[name] = level
        else:
            valid = ", ".join(sorted({"all", *LOGS, *ARTIFACTS}))
            raise ValueError(
                f"\nInvalid log settings: {text}, must be a comma separated list of fully\nqualified module names, "
                "registered log names or registered artifact names.\n"
                f'For more info on various settings, try TORCH_LOGS="help"\nValid settings:\n{valid}\n'
            )
    _set(levels, artifacts)


_from_text(os.environ.get("TORCH_LOGS", ""))
