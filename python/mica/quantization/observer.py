"""The observers, by the older name: see mica.ao.quantization.observer."""

from mica.ao.quantization import (  # noqa: F401
    HistogramObserver,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_histogram_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from mica.ao.quantization.observer import (  # noqa: F401
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
    get_observer_state_dict,
    load_observer_state_dict,
)
