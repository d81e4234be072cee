"""Settings of torch._functorch. They are kept; `backward_pass_autocast` alone has an effect."""

from mica._dynamo._settings_module import settings as _settings

_settings(__name__, "_functorch.config")
