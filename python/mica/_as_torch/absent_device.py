"""The functions of a device that Mica has no backend for: questions are answered, use is the error."""


def functions(name, module):
    """The names of a module of such a device."""

    def absent(*args, **kwargs):
        raise AssertionError(f"Torch not compiled with {name} enabled: Mica has no backend for it")

    def nothing(*args, **kwargs):
        """Does nothing: there is no device on which anything could happen."""

    made = {
        "is_available": lambda: False,
        "is_initialized": lambda: False,
        "is_bf16_supported": lambda including_emulation=True: False,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 0,
        "get_rng_state_all": lambda: [],
        "get_arch_list": lambda: [],
        "memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0,
        "memory_stats": lambda device=None: {},
    }
    for each in ("empty_cache", "manual_seed", "manual_seed_all", "seed", "seed_all", "ipc_collect",
                 "reset_peak_memory_stats", "set_rng_state_all"):  # fmt: skip
        made[each] = nothing
    for each in ("current_device", "set_device", "synchronize", "get_device_name", "get_device_properties",
                 "get_device_capability", "mem_get_info", "get_rng_state", "set_rng_state", "current_stream",
                 "default_stream", "set_stream", "init", "initial_seed"):  # fmt: skip
        made[each] = absent
    for each in ("Stream", "Event", "device", "device_of", "StreamContext", "stream"):
        made[each] = type(each, (), {"__init__": absent, "__module__": f"torch.{module}"})
    return made
