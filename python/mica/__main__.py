"""python -m mica script.py: run a program with torch meaning Mica."""

import sys

from mica import cli

_COMMANDS = ("run", "launch", "alias", "demo", "doctor", "version", "help")

if __name__ == "__main__":
    first = sys.argv[1] if len(sys.argv) > 1 else "--help"
    named = first in _COMMANDS or (first.startswith("-") and first != "-m")
    cli.main(sys.argv[1:] if named else ["run", *sys.argv[1:]])
