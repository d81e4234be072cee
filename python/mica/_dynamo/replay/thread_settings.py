"""The settings of the thread and the process on which every operation depends."""

import mica
import mica.cuda


def settings_but_grad():
    """All of them but whether gradients are recorded."""
    return (
        mica.is_inference_mode_enabled(),
        mica.is_autocast_enabled("cuda") and (mica.get_autocast_dtype("cuda"), mica.is_autocast_cache_enabled()),
        mica.is_autocast_enabled("cpu") and mica.get_autocast_dtype("cpu"),
        mica.get_default_dtype(),
        mica.are_deterministic_algorithms_enabled(),
        mica.cuda.current_device() if mica.cuda.is_initialized() else 0,
    )


def settings():
    return mica.is_grad_enabled(), settings_but_grad()
