"""Builds the wheel mica-torch: after its installation `import torch` is Mica, and tools find a torch by its metadata.

usage: build_mica_torch.py FOLDER
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "python" / "mica" / "_as_torch" / "path"


def version() -> str:
    for line in (ROOT / "python" / "mica" / "version.py").read_text().splitlines():
        if line.startswith("mica = "):
            return line.split('"')[1]
    raise SystemExit("python/mica/version.py names no version")


def files(number: str) -> dict[str, bytes]:
    """Every file of the wheel. The metadata of torch are in its data folder: a wheel can have only one dist-info."""
    own = f"mica_torch-{number}.dist-info"
    data = f"mica_torch-{number}.data/purelib"
    found = {
        f"{data}/{path.relative_to(SOURCE)}": path.read_bytes()
        for path in sorted(SOURCE.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    metadata = (
        f"Metadata-Version: 2.1\nName: mica-torch\nVersion: {number}\n"
        "Summary: Lets torch mean Mica: importing torch imports mica\n"
        f"Requires-Python: >=3.11\nRequires-Dist: mica=={number}\n"
    )
    found[f"{own}/METADATA"] = metadata.encode()
    found[f"{own}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: mica\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    found[f"{own}/top_level.txt"] = b"functorch\ntorch\n"
    found[f"{own}/entry_points.txt"] = b"[console_scripts]\ntorchrun = mica.distributed.run:command\n"
    return found


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    number = version()
    contents = files(number)
    record = f"mica_torch-{number}.dist-info/RECORD"
    lines = []
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    contents[record] = ("\n".join([*lines, f"{record},,"]) + "\n").encode()
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"mica_torch-{number}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    print(wheel)


if __name__ == "__main__":
    main()
