"""`mica lab`: open the page of instruments in the browser."""

import argparse
import signal
import sys
import threading


def _arguments(argv):
    parser = argparse.ArgumentParser(
        prog="mica lab", description="Ten instruments that show tensors, in the browser. Ctrl-C ends it."
    )
    parser.add_argument("--port", type=int, default=0, help="the port to listen on (default: a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address and open nothing")
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.port <= 65535:
        parser.error(f"argument --port: {arguments.port} is not between 0 and 65535")
    return arguments


def main(argv):
    """Serve until Ctrl-C."""
    arguments = _arguments(argv)
    from mica import lab

    try:
        server = lab.serve(arguments.port)
    except RuntimeError as error:
        raise SystemExit(str(error)) from None
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        print(f"Mica Lab is at {server.url}\nCtrl-C ends it.", flush=True)
        if not arguments.no_browser:
            import webbrowser

            webbrowser.open(server.url)
        while not ended.wait(3600):
            pass
    except KeyboardInterrupt:
        print(file=sys.stderr)
    server.stop()
