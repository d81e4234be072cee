"""`mica lab`: open the page of instruments in the browser."""

import argparse
import os
import signal
import sys


def _arguments(argv):
    parser = argparse.ArgumentParser(
        prog="mica lab", description="Instruments that show tensors, in the browser. Ctrl-C ends it."
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
    # A signal writes a byte here, so one that comes just before the wait still ends it. Waiting for an event, or sleeping,
    # would miss it: Python runs its handlers only between two steps of the program.
    arrived, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        print(f"Mica Lab is at {server.url}\nCtrl-C ends it.", flush=True)
        if not arguments.no_browser:
            import webbrowser

            webbrowser.open(server.url)
        while os.read(arrived, 1)[0] not in (signal.SIGTERM, signal.SIGINT):
            pass
    except KeyboardInterrupt:
        print(file=sys.stderr)
    server.stop()
