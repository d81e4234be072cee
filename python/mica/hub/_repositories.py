"""Repositories with a hubconf.py: functions that make models."""

import importlib.util
import itertools
import json
import os
import shutil
import sys
import urllib.request
import zipfile

from mica.hub._files import download_url_to_file, get_dir

_HUBCONF = "hubconf.py"


def _folder(repository, force_reload, trust_repo, verbose, source, skip_validation):
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return repository
    return _fetched(repository, force_reload, trust_repo, verbose, skip_validation)


def _parts(repository):
    """owner/name[:ref] -> owner, name, ref."""
    path, _, ref = repository.partition(":")
    owner, _, name = path.partition("/")
    if not name or "/" in name:
        raise ValueError(f"expected a repository as owner/name or owner/name:ref, but got {repository!r}")
    return owner, name, ref or "HEAD"


def _check_trust(owner, name, trust_repo):
    """Code from the web runs only if the user has said so."""
    trusted_file = os.path.join(get_dir(), "trusted_list")
    os.makedirs(get_dir(), exist_ok=True)
    known = set()
    if os.path.exists(trusted_file):
        with open(trusted_file) as file:
            known = {line.strip() for line in file}
    key = f"{owner}_{name}"
    if trust_repo is True or (trust_repo == "check" and key in known):
        if key not in known:
            with open(trusted_file, "a") as file:
                file.write(key + "\n")
        return
    answer = input(
        f"The repository {owner}_{name} does not belong to the list of trusted repositories and as such cannot be "
        "downloaded. Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
    )
    if answer.lower() not in ("y", "yes"):
        raise Exception("Untrusted repository.")
    with open(trusted_file, "a") as file:
        file.write(key + "\n")


def _listed(owner, name, kind):
    """The branches or the tags of a repository, page by page."""
    headers = {"Accept": "application/vnd.github.v3+json"}
    if token := os.environ.get("GITHUB_TOKEN"):
        headers["Authorization"] = f"token {token}"
    for page in itertools.count(1):
        url = f"https://api.github.com/repos/{owner}/{name}/{kind}?per_page=100&page={page}"
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            found = json.load(answer)
        if not found:
            return
        yield from found


def _check_ref(owner, name, ref):
    """GitHub gives out commits of forks by the name of the repository they were forked from: such code is somebody else's."""
    for kind in ("branches", "tags"):
        if any(each["name"] == ref or each["commit"]["sha"].startswith(ref) for each in _listed(owner, name, kind)):
            return
    raise ValueError(
        f"Cannot find {ref} in https://github.com/{owner}/{name}. If it's a commit from a forked repo, please call "
        "hub.load() with forked repo directly."
    )


def _fetched(repository, force_reload, trust_repo, verbose, skip_validation):
    owner, name, ref = _parts(repository)
    target = os.path.join(get_dir(), f"{owner}_{name}_{ref.replace('/', '_')}")
    _check_trust(owner, name, trust_repo)
    if os.path.exists(target) and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {target}\n")
        return target
    if ref != "HEAD" and not skip_validation:
        _check_ref(owner, name, ref)
    archive = target + ".zip"
    download_url_to_file(f"https://github.com/{owner}/{name}/zipball/{ref}", archive, progress=False)
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(archive) as opened:
        inner = opened.namelist()[0].split("/")[0]
        opened.extractall(get_dir())
    os.replace(os.path.join(get_dir(), inner), target)
    os.remove(archive)
    return target


def _hubconf(folder):
    path = os.path.join(folder, _HUBCONF)
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no {_HUBCONF} in {folder}")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [each for each in getattr(module, "dependencies", ()) if importlib.util.find_spec(each) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def names(repository, force_reload, trust_repo, verbose, source, skip_validation):
    module = _hubconf(_folder(repository, force_reload, trust_repo, verbose, source, skip_validation))
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def entry_point(repository, model, force_reload, trust_repo, verbose, source, skip_validation):
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    folder = _folder(repository, force_reload, trust_repo, verbose, source, skip_validation)
    function = getattr(_hubconf(folder), model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function
