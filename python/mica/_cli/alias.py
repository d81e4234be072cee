"""`mica alias on | off | status`: whether `import torch` means Mica in this whole environment."""

import base64
import hashlib
import os
import shutil
import sys
import sysconfig

USAGE = """usage: mica alias on       let `import torch` mean Mica in this environment, for every program and tool
       mica alias off      undo that
       mica alias status   say which torch this environment has"""

_PACKAGES = ("torch", "functorch")
_SOURCE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "_as_torch", "path")


class AliasError(Exception):
    """The reason why the environment was not changed."""


def metadata_name():
    """The folder of torch's metadata as Mica writes it."""
    return next(name for name in os.listdir(_SOURCE) if name.endswith(".dist-info"))


def _site_packages():
    return sysconfig.get_path("purelib")


def _read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _entries(folder):
    """The parts of torch in a folder of packages: names, and whether Mica has put each there."""
    found = {}
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name in _PACKAGES:
            ours = "_as_torch" in _read(folder, name, "__init__.py")
            if ours or name == "torch":  # functorch was once a package of its own
                found[name] = ours
        elif name.startswith("torch-") and name.endswith((".dist-info", ".egg-info")):
            found[name] = "+mica" in name
        elif name in ("torch.py", "torch.pth"):
            found[name] = False
    return found


def _state(folder):
    """ "on", "off" or "other"."""
    entries = {}
    for each in {folder, sysconfig.get_path("platlib")}:
        entries |= _entries(each)
    if not entries:
        return "off"
    return "on" if all(entries.values()) else "other"


def _installed_by_pip(folder):
    """Whether the wheel mica-torch has put the package there: then pip takes it away."""
    return any(name.startswith("mica_torch-") and name.endswith(".dist-info") for name in os.listdir(folder))


def _record_line(folder, path):
    with open(path, "rb") as file:
        data = file.read()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{os.path.relpath(path, folder)},sha256={digest},{len(data)}"


def _scripts():
    """The folder of commands of this environment."""
    return sysconfig.get_path("scripts")


_TORCHRUN = """#!{python}
import sys

from mica.distributed.run import command

sys.exit(command())
"""


def _write_torchrun():
    """The command torchrun, unless the environment has one. Returns its path if it was written."""
    path = os.path.join(_scripts(), "torchrun")
    if os.path.exists(path):
        return None
    with open(path, "w", encoding="utf-8") as file:
        file.write(_TORCHRUN.format(python=sys.executable))
    os.chmod(path, 0o755)
    return path


def _delete_torchrun():
    path = os.path.join(_scripts(), "torchrun")
    if _read(path) == _TORCHRUN.format(python=sys.executable):
        os.remove(path)


def turn_on(folder):
    state = _state(folder)
    if state == "other":
        raise AliasError(
            f"there is a torch of its own in {folder}: it stays. `pip uninstall torch` first, or use `mica run`"
        )
    if state == "on":
        return f"torch means Mica already: {os.path.join(folder, 'torch')}"
    metadata = metadata_name()
    try:
        names = [metadata, *(name for name in _PACKAGES if not os.path.exists(os.path.join(folder, name)))]
        for name in names:
            shutil.copytree(
                os.path.join(_SOURCE, name), os.path.join(folder, name), ignore=shutil.ignore_patterns("__pycache__")
            )
        # pip can remove a package that has a RECORD.
        lines = []
        for name in names:
            for base, _, files in os.walk(os.path.join(folder, name)):
                lines += [_record_line(folder, os.path.join(base, file)) for file in files]
        if command := _write_torchrun():
            lines.append(_record_line(folder, command))
        record = os.path.join(metadata, "RECORD")
        with open(os.path.join(folder, record), "w", encoding="utf-8") as file:
            file.write("\n".join([*sorted(lines), f"{record},,"]) + "\n")
    except OSError as error:
        raise AliasError(
            f"{folder} cannot be written: {error.strerror}. Use an environment of your own, or `mica run`"
        ) from None
    return f"torch now means Mica in this environment: {os.path.join(folder, 'torch')}"


def turn_off(folder):
    state = _state(folder)
    if state == "off":
        return "torch does not mean Mica in this environment: nothing to undo"
    if state == "other":
        raise AliasError(f"the torch in {folder} is not Mica's: it stays")
    if _installed_by_pip(folder):
        raise AliasError("the package mica-torch has put torch there: `pip uninstall mica-torch`")
    for name in _entries(folder):
        shutil.rmtree(os.path.join(folder, name))
    _delete_torchrun()
    return "torch no longer means Mica in this environment"


def status(folder):
    words = {
        "on": f"on: torch means Mica ({os.path.join(folder, 'torch')})",
        "off": "off: this environment has no torch; `mica alias on` lets torch mean Mica",
        "other": f"off: this environment has a torch of its own ({folder})",
    }
    return words[_state(folder)]


def main(arguments):
    actions = {"on": turn_on, "off": turn_off, "status": status}
    if len(arguments) != 1 or arguments[0] not in actions:
        print(USAGE, file=sys.stderr)
        raise SystemExit(2)
    try:
        print(actions[arguments[0]](_site_packages()))
    except AliasError as error:
        raise SystemExit(f"mica: {error}") from None
