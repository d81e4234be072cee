"""The older name of what mica.hub does."""

from mica.hub import download_url_to_file as _download_url_to_file  # noqa: F401
from mica.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name):
    if name == "tqdm":
        try:
            from tqdm import tqdm
        except ImportError:
            from mica.utils._progress import tqdm
        return tqdm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
