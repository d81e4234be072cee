"""The older name of what mica.hub does."""

from mica.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
