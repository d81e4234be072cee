"""Settings of torch._functorch. They are kept and have no effect."""

from mica._dynamo._settings_module import settings as _settings

_settings(__name__, "_functorch.config")
