"""What torch.compile's `mode`, `options` and `dynamic` may be.

All of them say how torch's compiler is to work, none what a function computes. Here a plan is made for every call, with
its sizes as numbers: there is nothing to specialize, to tune or to keep, so that each of them holds as it is. Those that
ask for CUDA graphs get them, and replays on a CPU from the fifth call on (replay/). Options that ask for files and
reports of torch's compiler are refused.
"""

MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_REPORTS = ("trace.enabled", "profile_bandwidth", "cpp.enable_kernel_profile")


def check(mode, options, dynamic):
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise AssertionError(f"Expected enable to be a bool, got {type(dynamic)}")


def asks_for_replay(mode, options):
    """Whether calls of a function are to be replayed as soon as that is right: on a GPU as a graph of its work."""
    return mode in ("reduce-overhead", "max-autotune") or bool(options and options.get("triton.cudagraphs"))


def check_names(mode, options, backend):
    """Refuse an unknown mode or option. A backend of the program's own, and one that runs functions as they are, may define
    their own."""
    if backend != "inductor":
        return
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    if options:
        _check_options(options)


def _check_options(options):
    from mica._inductor import config

    known = config.get_config_copy()
    for key, value in options.items():
        name = key.replace("-", "_")
        if name not in known:
            raise RuntimeError(f"Unexpected optimization option {key}, known options are {list(known)}")
        kind = type(known[name])
        if kind in (bool, int, str, float) and not isinstance(value, kind):
            raise RuntimeError(f"Unexpected type of attr {key}, got {type(value).__name__} should be {kind.__name__}")
        if name in _REPORTS and value:
            raise NotImplementedError(
                f"torch.compile: the option {key} asks for a report that Mica does not write; "
                "mica.explain(compiled, *args) says what runs"
            )
