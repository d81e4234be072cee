"""Apple's GPUs: there is no backend for them."""


def is_available():
    """Return False: Mica cannot use Apple GPUs."""
    return False


def device_count():
    """Return 0: Mica cannot use Apple GPUs."""
    return 0


def manual_seed(seed):
    """Does nothing: Mica has no Metal backend, and so no generator to seed."""


seed = manual_seed


def _absent(name):
    def function(*args, **kwargs):
        raise RuntimeError(f"Cannot execute {name}() without MPS backend: Mica has none")

    function.__name__ = name
    return function


for _name in ("synchronize", "empty_cache", "get_rng_state", "set_rng_state", "current_allocated_memory",
              "driver_allocated_memory", "recommended_max_memory", "set_per_process_memory_fraction",
              "compile_shader", "get_core_count"):  # fmt: skip
    globals()[_name] = _absent(_name)
