"""Settings of torch._inductor: kept, and of no effect."""

import types as _types

from mica._dynamo._settings_module import settings as _settings

_settings(
    __name__,
    max_autotune=False,
    coordinate_descent_tuning=False,
    fx_graph_cache=True,
    freezing=False,
    triton=_types.SimpleNamespace(cudagraphs=False, unique_kernel_names=True, cudagraph_trees=True),
    cpp=_types.SimpleNamespace(threads=-1, simdlen=None),
    trace=_types.SimpleNamespace(enabled=False),
)
