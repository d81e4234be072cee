"""The observers and roundings that have names of their own."""

from mica import _C
from mica._functions import quantization_schemes as schemes
from mica.ao.quantization.fake_quantize import FakeQuantize, FixedQParamsFakeQuantize, FusedMovingAvgObsFakeQuantize
from mica.ao.quantization.histogram import HistogramObserver
from mica.ao.quantization.observer import (
    FixedQParamsObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
)

_QNNPACK_EPS = 2.0**-12
_SIGNED = {"dtype": _C.qint8, "qscheme": schemes.per_tensor_symmetric}
_SIGNED_CHANNELS = {"dtype": _C.qint8, "qscheme": schemes.per_channel_symmetric}
_NARROW = {"quant_min": -127, "quant_max": 127, "eps": _QNNPACK_EPS}
_BYTE, _SIGNED_BYTE = {"quant_min": 0, "quant_max": 255}, {"quant_min": -128, "quant_max": 127}
_ROWS = {"dtype": _C.quint8, "qscheme": schemes.per_channel_affine_float_qparams, "ch_axis": 0}

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(**_SIGNED)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(**_SIGNED, **_NARROW)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(**_SIGNED_CHANNELS)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(**_SIGNED_CHANNELS, **_NARROW)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(**_ROWS)
default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=_C.quint8, is_dynamic=True, **_BYTE)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_reuse_input_observer = ReuseInputObserver
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=_C.quint8, **_BYTE
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=_C.quint8, **_BYTE
)
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer

_ACTIVATION = {"dtype": _C.quint8, "qscheme": schemes.per_tensor_affine, "reduce_range": True, **_BYTE}
default_fake_quant = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, **_ACTIVATION)
default_histogram_fake_quant = FakeQuantize.with_args(observer=HistogramObserver, **_ACTIVATION)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, reduce_range=False, **_SIGNED, **_SIGNED_BYTE
)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, reduce_range=False, ch_axis=0, **_SIGNED_CHANNELS, **_SIGNED_BYTE
)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, is_dynamic=True, dtype=_C.quint8, averaging_constant=1, **_BYTE
)
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, averaging_constant=1, **_ROWS, **_BYTE
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, dtype=_C.quint8, **_BYTE
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_SIGNED, **_SIGNED_BYTE
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, **_SIGNED_CHANNELS, **_SIGNED_BYTE
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_SIGNED, **_NARROW
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, **_SIGNED_CHANNELS, **_NARROW
)
