"""The eager flow: give a model a qconfig, prepare it, run it on examples, convert it."""

from mica.ao.nn.quantized.functional_modules import FloatFunctional
from mica.ao.quantization import defaults as _defaults
from mica.ao.quantization import qconfig as _qconfig
from mica.ao.quantization.defaults import *  # noqa: F403
from mica.ao.quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FixedQParamsFakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from mica.ao.quantization.fuse_modules import (
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
    fuse_linear_bn,
    fuse_modules,
    fuse_modules_qat,
    get_fuser_method,
)
from mica.ao.quantization.histogram import HistogramObserver
from mica.ao.quantization.observer import (
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
    UniformQuantizationObserverBase,
    get_observer_state_dict,
    load_observer_state_dict,
)
from mica.ao.quantization.qconfig import *  # noqa: F403
from mica.ao.quantization.qconfig import QConfig
from mica.ao.quantization.qconfig_mapping import (
    QConfigMapping,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from mica.ao.quantization.quant_type import QuantType, quant_type_to_str
from mica.ao.quantization.quantize import (
    add_quant_dequant,
    convert,
    default_eval_fn,
    get_default_custom_config_dict,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_static_quant_module_mappings,
    get_dynamic_quant_module_class,
    get_static_quant_module_class,
    no_observer_set,
    prepare,
    prepare_qat,
    quantize,
    quantize_dynamic,
    quantize_qat,
    swap_module,
)
from mica.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FixedQParamsObserver",
    "FloatFunctional",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QConfigMapping",
    "QuantStub",
    "QuantType",
    "QuantWrapper",
    "RecordingObserver",
    "ReuseInputObserver",
    "UniformQuantizationObserverBase",
    "add_quant_dequant",
    "convert",
    "default_eval_fn",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "fuse_modules",
    "fuse_modules_qat",
    "get_dynamic_quant_module_class",
    "get_fuser_method",
    "get_static_quant_module_class",
    "no_observer_set",
    "get_default_custom_config_dict",
    "get_default_dynamic_quant_module_mappings",
    "get_default_qat_module_mappings",
    "get_default_qat_qconfig_mapping",
    "get_default_qconfig_mapping",
    "get_default_static_quant_module_mappings",
    "get_observer_state_dict",
    "load_observer_state_dict",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
    "quant_type_to_str",
    "quantize_qat",
    "swap_module",
    *(
        name
        for module in (_defaults, _qconfig)
        for name in vars(module)
        if "qconfig" in name or "default_" in name or name.endswith("neg_127_to_127")
    ),
]
