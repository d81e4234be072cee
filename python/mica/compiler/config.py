"""Settings of torch.compiler: kept, and of no effect."""

from mica._dynamo._settings_module import settings as _settings

_settings(
    __name__,
    job_id=None,
    cache_key_tag="",
    force_disable_caches=False,
    recompile_limit=8,
    accumulated_recompile_limit=256,
)
