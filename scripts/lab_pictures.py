"""Pictures of the Lab: those of the documents anew, or every instrument in both themes, on a desktop and on a phone.

usage: python scripts/lab_pictures.py [--all FOLDER]

It needs Playwright and a Chromium (`scripts/install_browser`). Look at what it saves before an instrument is called done.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "ops"))

from lab_instruments import DRAWN  # noqa: E402

SETTLED = 1500  # milliseconds until moving parts have come to rest
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
# Picture of the documents -> instrument, its state, and an element that is there when it is drawn.
DOCUMENTS = {
    "lab-strides.png": (
        "c",
        {"shape": [4, 3], "strides": [1, 4], "offset": 0, "elements": 12, "dtype": "float32", "pick": 7},
        ".place.here[data-place='6']",
    ),
    "lab-precision.png": ("f", {"curve": "sine", "amplitude": 70000}, "rect[data-clipped=float16]"),
}


def save(page, address: str, drawn: str, to: Path, whole: bool) -> None:
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(drawn)
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=to, full_page=whole)
    print(to)


def for_documents(browser, url: str) -> None:
    page = browser.new_page(viewport={"width": 1180, "height": 860}, color_scheme="light")
    for name, (letter, state, drawn) in DOCUMENTS.items():
        save(page, f"{url}#{letter}?{quote(json.dumps(state))}", drawn, ROOT / "docs" / name, whole=False)


def all_of_them(browser, url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, options in {"desktop": DESKTOP, "phone": PHONE}.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme, **options)
            page = context.new_page()
            for letter, drawn in {"": ".thumb svg", **DRAWN}.items():
                save(page, f"{url}#{letter}", drawn, folder / f"{letter or 'start'}-{kind}-{scheme}.png", whole=True)
            context.close()


def main() -> int:
    import mica
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--all", type=Path, metavar="FOLDER", help="every instrument, both themes and widths, into this folder"
    )
    arguments = parser.parse_args()
    server = mica.lab.serve()
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        if arguments.all:
            all_of_them(browser, server.url, arguments.all)
        else:
            for_documents(browser, server.url)
        browser.close()
    server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
