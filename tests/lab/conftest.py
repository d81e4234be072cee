"""A running Lab, and a browser to look at it.

With MICA_LAB_STATIC=build/lab the browser looks at the Lab without a server instead (`make test-lab-wasm`): the same
tests, with the answers of this machine's engine as the judge of the one in the page. What is asked without a picture is
asked of the engine in the page, too. A test that needs a server, a process or Python says so by the mark `served`.
"""

import functools
import http.server
import json
import os
import shutil
import threading
from types import SimpleNamespace
from urllib.request import Request, urlopen

import mica
import pytest

STATIC = os.environ.get("MICA_LAB_STATIC")


def pytest_collection_modifyitems(items):
    for item in items:
        needs = item.get_closest_marker("served")
        if STATIC and needs:
            item.add_marker(pytest.mark.skip(reason=f"the page has no server: {needs.args[0]}"))


class Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def server():
    running = mica.lab.serve()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def lab(server):
    """Where the page is: `.url`."""
    if not STATIC:
        yield server
        return
    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=STATIC))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{files.server_port}/")
    files.shutdown()
    files.server_close()


def answered(text):
    """The value of an answer; the engine's refusal is returned as {"error": ...}."""
    answer = json.loads(text)
    return answer["value"] if answer["ok"] else {"error": answer["error"]}


@pytest.fixture(scope="session")
def ask_server(server):
    def question(instrument, **values):
        request = Request(
            f"{server.url}api/{instrument}",
            data=json.dumps(values).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=30) as response:
            return answered(response.read())

    return question


CARRY = """async ([instrument, text]) => {
  const { carry } = await import("./transport.js");
  return carry(instrument, text, new AbortController().signal);
}"""


@pytest.fixture(scope="session")
def ask_page(browser, lab):
    context = browser.new_context()
    shown = context.new_page()
    shown.goto(lab.url + "#m")  # the instrument that asks the fewest questions by itself
    shown.wait_for_selector("#asked")

    def question(instrument, **values):
        status, text = shown.evaluate(CARRY, [instrument, json.dumps(values)])
        assert status == 200, text
        return answered(text)

    yield question
    context.close()


@pytest.fixture
def ask(request):
    """Ask an instrument: over HTTP, or the engine in the page. What a page shows is judged by this machine's engine."""
    in_page = STATIC and "page" not in request.fixturenames
    return request.getfixturevalue("ask_page" if in_page else "ask_server")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed: the Lab's page is not driven here")
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, lab):
    """A page of the Lab that fails the test if its scripts raise or log an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = context.new_page()
    problems = []
    shown.on("pageerror", lambda error: problems.append(str(error)))
    shown.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    shown.set_default_timeout(60000)  # a busy machine is slow; a wait ends as soon as what it waits for is there

    def visit(letter, state=None):
        from urllib.parse import quote

        # Another letter in the same page replaces the instrument; the present one is not the one that is waited for.
        shown.evaluate("document.getElementById('instrument')?.setAttribute('data-left', '')")
        hash_ = f"#{letter}" + (f"?{quote(json.dumps(state))}" if state is not None else "")
        shown.goto(lab.url + hash_)
        shown.wait_for_selector("#instrument:not([data-left]) > *")
        return shown

    def until(condition):
        """Wait for an expression to be true; the page's own policy forbids Playwright's way, which evaluates text."""
        for _ in range(1200):
            if shown.evaluate(condition):
                return
            shown.wait_for_timeout(50)
        raise AssertionError(f"never true: {condition}")

    def error():
        """The error that the page shows, once it shows one."""
        return shown.wait_for_selector(".error:not(:empty)").inner_text()

    shown.visit, shown.until, shown.error = visit, until, error
    yield shown
    context.close()
    assert not problems, problems
