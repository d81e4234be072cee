"""Torch's compiler of graphs: its settings, and packages of programs."""


def compile(gm, example_inputs=None, options=None):
    """A function that computes what a graph does, with its kernels run together."""
    import mica

    return mica.compile(gm, options=options)


def list_mode_options(mode=None, dynamic=None):
    """The options that the modes of torch.compile stand for, of all modes or of one."""
    tuned = {"max_autotune": True, "coordinate_descent_tuning": True}
    options = {
        "default": {},
        "lite": {},
        "reduce-overhead": {"triton.cudagraphs": True},
        "max-autotune-no-cudagraphs": tuned,
        "max-autotune": {**tuned, "triton.cudagraphs": True},
    }
    if mode is None:
        return options
    if mode not in options:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(options)}")
    return options[mode]


def list_options():
    """The names that torch.compile(options=...) takes."""
    from mica._inductor import config

    return list(config.get_config_copy())


def cudagraph_mark_step_begin():
    """Does nothing: no steps are recorded."""


def __getattr__(name):
    import importlib

    if name in ("compile_fx", "config", "decomposition", "packages", "utils"):
        return importlib.import_module(f"mica._inductor.{name}")
    if name in ("aoti_compile_and_package", "aoti_load_package"):
        return getattr(importlib.import_module("mica._inductor.packages"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
