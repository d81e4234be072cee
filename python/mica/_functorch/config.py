"""Settings of torch._functorch: kept, and of no effect."""

from mica._dynamo._settings_module import settings as _settings

_settings(__name__, "_functorch.config")
