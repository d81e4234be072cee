"""Settings of torch._dynamo: kept, and of no effect."""

from mica._dynamo._settings_module import settings as _settings

_settings(
    __name__,
    recompile_limit=8,
    cache_size_limit=8,
    accumulated_recompile_limit=256,
    accumulated_cache_size_limit=256,
    suppress_errors=False,
    verbose=False,
    disable=False,
    assume_static_by_default=True,
    automatic_dynamic_shapes=True,
    capture_scalar_outputs=False,
    capture_dynamic_output_shape_ops=False,
    inline_inbuilt_nn_modules=True,
    optimize_ddp=True,
    compiled_autograd=False,
    specialize_int=False,
    error_on_recompile=False,
    allow_unspec_int_on_nn_module=False,
)
