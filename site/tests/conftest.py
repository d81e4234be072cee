"""The built site on a server of this machine, and a browser to look at it."""

import functools
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "ops"))  # what the tests of pages share
SITE = Path(os.environ.get("MICA_SITE", ROOT / "build" / "site"))


@pytest.fixture(scope="session")
def folder():
    assert (SITE / "index.html").is_file(), f"there is no site in {SITE}: make site"
    return SITE


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(folder):
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed: the site is not looked at here")
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def look(browser):
    """Opens a page; the test fails if its scripts raise, log an error, or ask for anything on another machine."""
    contexts, problems = [], []

    def open_page(url, width=1280, scheme="light", scripts=True):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
        )
        contexts.append(context)
        shown = context.new_page()
        shown.set_default_timeout(30000)
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        shown.on("request", lambda r: problems.append(r.url) if foreign(r.url) else None)
        shown.goto(url)
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert not problems, problems


def foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:", "about:"))
