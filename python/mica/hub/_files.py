"""Files from the web, kept in a folder."""

import hashlib
import os
import re
import sys
import tempfile
from urllib.parse import urlparse
from urllib.request import Request, urlopen

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_folder = None


def get_dir():
    """The folder: what `set_dir` named, or $TORCH_HOME/hub, or hub in torch's folder of the user's cache."""
    return _folder if _folder is not None else os.path.join(_get_torch_home(), "hub")


def _get_torch_home():
    """$TORCH_HOME, or torch's folder of the user's cache."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d):
    """Keep files in this folder from now on."""
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Fetch a file. It is at `dst` only when it is whole and its SHA-256 begins with `hash_prefix`."""
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    with urlopen(Request(url, headers={"User-Agent": "mica.hub"})) as source:
        length = int(source.headers.get("Content-Length") or 0)
        part = tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(dst)), delete=False)  # noqa: SIM115
        try:
            with part:
                done = 0
                while block := source.read(1 << 17):
                    part.write(block)
                    digest.update(block)
                    done += len(block)
                    if progress and length:
                        sys.stderr.write(f"\r{100 * done // length:3d}% of {length / 2**20:.1f} MB")
                if progress and length:
                    sys.stderr.write("\n")
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            os.replace(part.name, dst)
        finally:
            if os.path.exists(part.name):
                os.remove(part.name)


def load_state_dict_from_url(
    url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False
):
    """Load what the file holds; it is fetched the first time."""
    from mica.serialization import load

    model_dir = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(model_dir, exist_ok=True)
    name = os.path.basename(urlparse(url).path) if file_name is None else file_name
    path = os.path.join(model_dir, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress=progress)
    return load(path, map_location=map_location, weights_only=weights_only)
