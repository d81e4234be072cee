"""Switches for what modules do when their tensors are converted."""

_overwrite_module_params_on_conversion = False


def set_overwrite_module_params_on_conversion(value):
    """Whether conversions give modules new parameters instead of changing the ones they have."""
    global _overwrite_module_params_on_conversion
    _overwrite_module_params_on_conversion = value


def get_overwrite_module_params_on_conversion():
    """What set_overwrite_module_params_on_conversion has set: False by default."""
    return _overwrite_module_params_on_conversion


def set_swap_module_params_on_conversion(value):
    """Refused unless False: parameters are never swapped."""
    if value:
        raise NotImplementedError(
            "set_swap_module_params_on_conversion: Mica does not swap tensors; conversions change parameters in place, "
            "or replace them after set_overwrite_module_params_on_conversion(True)"
        )


def get_swap_module_params_on_conversion():
    """Whether conversions swap parameters: always False, since Mica changes them in place."""
    return False
