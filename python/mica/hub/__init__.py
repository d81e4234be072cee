"""Files of weights and models from the web, or models from a folder, kept in a folder."""

from urllib.parse import urlparse  # noqa: F401 - packages take it from here

from mica.hub import _repositories
from mica.hub._files import (  # noqa: F401
    HASH_REGEX,
    _get_torch_home,
    download_url_to_file,
    get_dir,
    load_state_dict_from_url,
    set_dir,
)

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]


def list(github, force_reload=False, skip_validation=False, trust_repo="check", verbose=True, source="github"):
    """The names of the models that a repository offers."""
    return _repositories.names(github, force_reload, trust_repo, verbose, source, skip_validation)


def help(github, model, force_reload=False, skip_validation=False, trust_repo="check", verbose=True, source="github"):
    """What a repository says about a model."""
    entry = _repositories.entry_point(github, model, force_reload, trust_repo, verbose, source, skip_validation)
    return entry.__doc__


def load(
    repo_or_dir, model, *args, source="github", trust_repo="check", force_reload=False, verbose=True,
    skip_validation=False, **kwargs,
):  # fmt: skip
    """The model that a function of a repository's hubconf.py makes: of a folder (source="local"), or of GitHub.

    Before a branch, a tag or a commit that is named is fetched, GitHub is asked whether the repository has it, unless
    `skip_validation` is set.
    """
    entry = _repositories.entry_point(repo_or_dir, model, force_reload, trust_repo, verbose, source, skip_validation)
    return entry(*args, **kwargs)


def __getattr__(name):
    if name == "tqdm":  # the package, which programs take from here
        from tqdm import tqdm

        return tqdm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
