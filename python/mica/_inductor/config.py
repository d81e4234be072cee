"""Settings of torch._inductor. They are kept and have no effect."""

from mica._dynamo._settings_module import settings as _settings

_settings(__name__, "_inductor.config")
