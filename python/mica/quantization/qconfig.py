"""The configurations, by the older name: see mica.ao.quantization.qconfig."""

from mica.ao.quantization.qconfig import (  # noqa: F401
    QConfig,
    default_activation_only_qconfig,
    default_debug_qconfig,
    default_dynamic_qconfig,
    default_per_channel_qconfig,
    default_qat_qconfig,
    default_qat_qconfig_v2,
    default_qconfig,
    default_weight_only_qconfig,
    float16_dynamic_qconfig,
    float16_static_qconfig,
    float_qparams_weight_only_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
    qconfig_equals,
)
