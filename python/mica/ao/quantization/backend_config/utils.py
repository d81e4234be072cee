"""Answers about a backend's configuration as dictionaries. Patterns stand in them from their end to their beginning."""

__all__ = [
    "get_fused_module_classes", "get_module_to_qat_module", "get_pattern_to_dtype_configs",
    "get_pattern_to_input_type_to_index", "get_qat_module_classes", "get_root_module_to_quantized_reference_module",
]  # fmt: skip


def get_pattern_to_dtype_configs(backend_config):
    """The dtypes that each pattern takes."""
    return {key: config.dtype_configs for key, config in backend_config._pattern_complex_format_to_config.items()}


def get_pattern_to_input_type_to_index(backend_config):
    """At which place each pattern has its weight and its bias."""
    return {
        key: config._input_type_to_index for key, config in backend_config._pattern_complex_format_to_config.items()
    }


def get_qat_module_classes(backend_config):
    """The classes of modules in training."""
    return tuple({config.qat_module for config in backend_config.configs if config.qat_module is not None})


def get_fused_module_classes(backend_config):
    """The classes of joined modules."""
    return tuple({config.fused_module for config in backend_config.configs if config.fused_module is not None})


def get_root_module_to_quantized_reference_module(backend_config):
    """The reference form of each class with a weight."""
    return {
        config.root_module: config.reference_quantized_module
        for config in backend_config.configs
        if config.root_module is not None and config.reference_quantized_module is not None
    }


def get_module_to_qat_module(backend_config):
    """The trained form of each pattern that has one."""
    return {
        key: config.qat_module
        for key, config in backend_config._pattern_complex_format_to_config.items()
        if config.qat_module
    }
