"""Switches for what modules do when their tensors are converted."""

_overwrite_module_params_on_conversion = False
_swap_module_params_on_conversion = False


def set_overwrite_module_params_on_conversion(value):
    """Whether conversions give modules new parameters instead of changing the ones they have."""
    global _overwrite_module_params_on_conversion
    _overwrite_module_params_on_conversion = value


def get_overwrite_module_params_on_conversion():
    """What set_overwrite_module_params_on_conversion has set: False by default."""
    return _overwrite_module_params_on_conversion


def set_swap_module_params_on_conversion(value):
    """Whether conversions and load_state_dict swap parameters with new ones, as torch.utils.swap_tensors does."""
    global _swap_module_params_on_conversion
    _swap_module_params_on_conversion = value


def get_swap_module_params_on_conversion():
    """What set_swap_module_params_on_conversion has set: False by default."""
    return _swap_module_params_on_conversion
