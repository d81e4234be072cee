"""The examples in torch's docstrings, statement by statement on torch and on Mica: what they bind, print, warn of and refuse."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from docstring_comparison import differences  # noqa: E402
from docstring_examples import collect  # noqa: E402
from docstring_excuses import EXCUSES, NOT_RUN, SKIPPED_STATEMENTS  # noqa: E402

pytestmark = pytest.mark.torch

RUNNER = Path(__file__).with_name("docstring_runner.py")
_SKIPPED = re.compile("|".join(SKIPPED_STATEMENTS))
_NOT_RUN = re.compile("|".join(NOT_RUN))
EXAMPLES = {
    name: (home, [(source, bool(_SKIPPED.search(source))) for source in statements])
    for name, home, statements in collect(torch)
    if not _NOT_RUN.fullmatch(name)
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """What the statements of every docstring did, on Mica and on torch."""
    folder = tmp_path_factory.mktemp("docstrings")
    path = folder / "examples"
    path.write_bytes(pickle.dumps([(name, home, statements) for name, (home, statements) in EXAMPLES.items()]))
    found = []
    for library, command in (("mica", ["-m", "mica", "run"]), ("torch", [])):
        answer = folder / library
        command = [sys.executable, *command, str(RUNNER), str(path), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(pickle.loads(answer.read_bytes()))
    return found


def is_excused(name, line):
    return any(re.fullmatch(names, name) and re.search(words, line) for names, words, _ in EXCUSES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(records, name):
    ours, theirs = (found[name] for found in records)
    if any("unknown architecure" in record.get("error", ()) for record in theirs if isinstance(record, dict)):
        pytest.skip("torch's quantized kernels do not know this processor")
    lines = [line for line in differences(EXAMPLES[name][1], ours, theirs) if not is_excused(name, line)]
    assert not lines, "\n".join(lines)


def test_most_statements_run(records):
    """The examples are examples of something: few statements fail on torch itself."""
    theirs = [record for each in records[1].values() if not isinstance(each, str) for record in each]
    assert len(theirs) > 5000 and sum("error" in record for record in theirs) < len(theirs) / 10
