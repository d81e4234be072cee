"""How a layer is quantized: an observer for activations and one for weights."""

from collections import namedtuple

from mica import _C
from mica.ao.quantization import defaults as given
from mica.ao.quantization.fake_quantize import FusedMovingAvgObsFakeQuantize
from mica.ao.quantization.histogram import HistogramObserver
from mica.ao.quantization.observer import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
)
from mica.nn import Identity, Module


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """The makers of the observers of a layer's activations and of its weights."""

    __slots__ = ()

    def __new__(cls, activation, weight):
        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError(
                "QConfig received observer instance, please pass observer class instead. "
                "Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


default_qconfig = QConfig(given.default_observer, given.default_weight_observer)
default_debug_qconfig = QConfig(RecordingObserver, given.default_weight_observer)
default_per_channel_qconfig = QConfig(given.default_observer, given.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(given.default_dynamic_quant_observer, given.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(given.default_dynamic_quant_observer, given.default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=_C.float16, is_dynamic=True), PlaceholderObserver.with_args(dtype=_C.float16)
)
float16_static_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=_C.float16), PlaceholderObserver.with_args(dtype=_C.float16)
)
float_qparams_weight_only_qconfig = QConfig(PlaceholderObserver, given.default_float_qparams_observer)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)
default_reuse_input_qconfig = QConfig(ReuseInputObserver, NoopObserver)
default_qat_qconfig = QConfig(given.default_fake_quant, given.default_weight_fake_quant)
default_qat_qconfig_v2 = QConfig(given.default_fused_act_fake_quant, given.default_fused_wt_fake_quant)
default_dynamic_qat_qconfig = QConfig(given.default_dynamic_fake_quant, given.default_weight_fake_quant)
default_weight_only_qconfig = QConfig(Identity, given.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(given.default_fake_quant, Identity)
default_embedding_qat_qconfig = QConfig(NoopObserver.with_args(dtype=_C.float32), given.default_embedding_fake_quant)
_SIGNED_ACTIVATIONS = {"dtype": _C.qint8, "reduce_range": False, "eps": 2.0**-12}
default_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(**_SIGNED_ACTIVATIONS), given.weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(**_SIGNED_ACTIVATIONS), given.per_channel_weight_observer_range_neg_127_to_127
)
_rounded_activations = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, **_SIGNED_ACTIVATIONS
)
default_symmetric_qnnpack_qat_qconfig = QConfig(_rounded_activations, given.fused_wt_fake_quant_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _rounded_activations, given.fused_per_channel_wt_fake_quant_range_neg_127_to_127
)

# Whether a backend of torch limits activations to 7 bits, and whether it has a scale for each channel of weights.
_BACKENDS = {"x86": (True, True), "fbgemm": (True, True), "onednn": (False, True), "qnnpack": (False, False)}


def _traits(backend, version):
    if version > 1 or backend not in _BACKENDS:
        raise AssertionError(f"backend: {backend}, version {version}: known are {', '.join(_BACKENDS)} in version 0, 1")
    return _BACKENDS[backend]


def get_default_qconfig(backend="x86", version=0):
    """The observers that torch takes for a backend; Mica's own products are exact with all of them."""
    reduce_range, channels = _traits(backend, version)
    weight = given.default_per_channel_weight_observer if channels else given.default_weight_observer
    return QConfig(HistogramObserver.with_args(reduce_range=reduce_range), weight)


def get_default_qat_qconfig(backend="x86", version=1):
    """As get_default_qconfig, for training."""
    reduce_range, channels = _traits(backend, version)
    activation = FusedMovingAvgObsFakeQuantize.with_args(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, reduce_range=reduce_range
    )
    weight = given.default_fused_per_channel_wt_fake_quant if channels else given.default_fused_wt_fake_quant
    return QConfig(activation, weight)


def qconfig_equals(q1, q2):
    """Whether two qconfigs ask for the same observers with the same arguments."""

    def parts(maker):
        return (getattr(maker, "func", maker), sorted((getattr(maker, "keywords", None) or {}).items(), key=str))

    if q1 is None or q2 is None:
        return q1 is q2
    return parts(q1.activation) == parts(q2.activation) and parts(q1.weight) == parts(q2.weight)


def propagate_qconfig_(module, qconfig_dict=None, prepare_custom_config_dict=None):
    """Give every module below `module` its own qconfig, that of its name or type in the dictionary, or its parent's."""
    _propagate(module, qconfig_dict or {}, None, "")


def _propagate(module, known, parent, prefix):
    own = getattr(module, "qconfig", known.get(prefix, known.get(type(module), parent)))
    module.qconfig = own
    for name, child in module.named_children():
        _propagate(child, known, own, f"{prefix}.{name}" if prefix else name)
