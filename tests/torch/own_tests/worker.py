"""Runs the tests of one file of torch's, on torch or on Mica, and writes a line of JSON for each.

usage: worker.py LIBRARY FOLDER FILE OUTCOMES LIMIT WHEEL [NAMES]

LIBRARY is torch or mica, or list, which writes the names of torch's tests and runs none. FILE is relative to FOLDER, LIMIT is the seconds
that a test may take, WHEEL the folder of the installed package torch. NAMES is a file with the names of the tests to run, one a line. Tests
that OUTCOMES names are not run again: where a test ends the process, another process goes on behind it.
"""

import json
import os
import signal
import sys
import time
import traceback
import unittest
from pathlib import Path


class TookTooLong(BaseException):
    """Not an Exception: tests that catch those must not go on."""


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


class Outcomes(unittest.TestResult):
    """Writes down how each test ended."""

    def __init__(self, out, file, limit):
        super().__init__()
        self._out, self._file, self._limit = out, file, limit
        self._first = None
        signal.signal(signal.SIGALRM, self._alarm)

    @staticmethod
    def _alarm(number, frame):
        raise TookTooLong

    def write(self, **fields):
        self._out.write(json.dumps(fields) + "\n")
        self._out.flush()

    def startTest(self, test):
        super().startTest(test)
        self._first, self._begin = None, time.monotonic()
        self.write(name=name_of(test), outcome="started")
        signal.setitimer(signal.ITIMER_REAL, self._limit)

    def stopTest(self, test):
        signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = round(time.monotonic() - self._begin, 2)
        self.write(
            name=name_of(test), seconds=seconds, **(self._first or {"outcome": "failed", "reason": "it says nothing"})
        )
        self.shouldStop = False  # one library's wish to stop is no reason to leave tests out
        super().stopTest(test)

    def _say(self, outcome, reason="", line=""):
        if self._first is None or self._first["outcome"] == "passed":
            self._first = {"outcome": outcome, "reason": reason, "line": line}

    def _failed(self, error):
        kind, value, trace = error
        if kind is TookTooLong:
            return self._say("failed", f"it takes more than {self._limit} s", self._line(trace))
        text = " ".join("".join(traceback.format_exception_only(kind, value)).split())[:400]
        if value.__cause__ is not None:
            text = (
                f"{type(value.__cause__).__name__}: {' '.join(str(value.__cause__).split())[:250]}, then {text[:150]}"
            )
        return self._say("failed", text, self._line(trace))

    def _line(self, trace):
        frames = [f for f in traceback.extract_tb(trace) if os.path.realpath(f.filename) == self._file]
        return f"{os.path.basename(self._file)}:{frames[-1].lineno} {frames[-1].line}" if frames else ""

    def addSuccess(self, test):
        self._say("passed")

    def addFailure(self, test, err):
        self._failed(err)

    def addError(self, test, err):
        if isinstance(test, unittest.TestCase):
            self._failed(err)
        else:  # a class or a module that cannot be set up
            text = " ".join("".join(traceback.format_exception_only(*err[:2])).split())
            self.write(name=str(test), outcome="setup", reason=text[:400])

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._failed(err)

    def addSkip(self, test, reason):
        self._say("skipped", str(reason)[:400])

    def addExpectedFailure(self, test, err):
        self._say("passed")

    def addUnexpectedSuccess(self, test):
        self._say("failed", "a success that was not expected")


def tests_in(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_in(test)
        else:
            yield test


def main(library, folder, file, outcomes, limit, wheel, names=None):
    path = os.path.realpath(os.path.join(folder, file))
    # Test files find one another from the folder of all tests, and from their own.
    folders = list(dict.fromkeys([os.path.realpath(folder), os.path.dirname(path)]))
    sys.path[1:1] = folders
    sys.argv = [path]
    done = set()
    if os.path.exists(outcomes):
        done = {json.loads(line)["name"] for line in Path(outcomes).read_text().splitlines()}
    with open(outcomes, "a") as out:
        result = Outcomes(out, path, float(limit))
        try:
            import utilities

            if library == "mica":
                utilities.install(os.path.dirname(wheel), reversed(folders))
            else:
                utilities.be_lenient(reversed(folders))
            module = __import__(os.path.splitext(os.path.basename(path))[0])
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            result.write(name="", outcome="import", reason=f"{reason[:400]} ({frame.filename}:{frame.lineno})")
            return
        wanted = set(Path(names).read_text().split()) if names else None
        found = list(tests_in(unittest.defaultTestLoader.loadTestsFromModule(module)))
        if library == "list":
            for test in found:
                result.write(name=name_of(test), outcome="listed")
            found = []
        chosen = [t for t in found if name_of(t) not in done and (wanted is None or name_of(t) in wanted)]
        unittest.TestSuite(chosen)(result)
        result.write(name="", outcome="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # Threads and processes that tests have left behind are not waited for.
    os._exit(0)
