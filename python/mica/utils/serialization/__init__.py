"""Settings of torch.save and torch.load."""

from mica.utils.serialization import config

__all__ = ["config"]
