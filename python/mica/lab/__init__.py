"""The Lab: a page of instruments in the browser, served by the engine on this machine alone."""

import os
import secrets

__all__ = ["serve", "watch"]

_PAGE = os.path.join(os.path.dirname(__file__), "page")
# The source files that the page links to, beside the package's modules (cmake/Lab.cmake).
_SOURCES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "_lab_sources")


def serve(port=0, token=None):
    """Start the server in the background; `.url` says where the page is, `.stop()` ends it."""
    import sys

    from mica import _lab

    # Programs of the reader run in a process of this Python, with the same package.
    _lab.set_interpreter(
        sys.executable or "", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    )
    return _lab.serve(_PAGE, _SOURCES, secrets.token_urlsafe(18) if token is None else token, port)


def watch(model=None, *, port=0, every=0.5, browser=False):
    """Show the running program in the Lab: its memory by category, its hidden copies, its slowest lines.

    With a model, a step is a call of it; without, every module counts. Call it on the thread that trains, before the loop.
    """
    from mica.lab._watch import Watch

    server = serve(port)
    shown = Watch(server, model, every)
    _announce(server, browser)
    return shown


def _show(report, browser):
    """Show a run that has ended, as `run` of the page takes it; the server."""
    import json

    from mica import _lab

    server = serve()
    _lab.publish(json.dumps(report))
    _announce(server, browser)
    return server


def _announce(server, browser):
    print(f"Mica Lab is at {server.url}#j", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(server.url + "#j")
