"""`mica trace` on programs as they are."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "hidden_copies.py"


def trace(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-c", "from mica.cli import main; main()", "trace", *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=120, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def marked(words):
    """The number of the example's line with a remark that begins so."""
    lines = EXAMPLE.read_text().splitlines()
    return [i for i, line in enumerate(lines, 1) if re.search(rf"# {words}", line)]


def test_three_copies_and_a_leak_are_found(tmp_path):
    done = trace("-o", "report.html", EXAMPLE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "5 steps, the last loss" in done.stdout
    copies = done.stderr.split("Hidden copies:")[1].split("Memory:")[0]
    found = {int(n) for n in re.findall(r"hidden_copies\.py:(\d+)", copies)}
    # The gradient of the conversion is converted back, in the line that runs the backward pass.
    (backward,) = (i for i, line in enumerate(EXAMPLE.read_text().splitlines(), 1) if "loss.backward()" in line)
    assert set(marked("a copy")) == found - {backward} and len(found) >= 3
    leaks = done.stderr.split("Held and never let go:")[1].split("Operations:")[0]
    assert [int(n) for n in re.findall(r"hidden_copies\.py:(\d+)", leaks)] == marked("a leak")
    page = (tmp_path / "report.html").read_text()
    for number in marked("a copy"):
        assert f"hidden_copies.py:{number}" in page
    assert "Hidden copies" in page and "Memory over time" in page and "Slowest lines" in page


def test_the_lab_shows_all_four_live(tmp_path):
    pytest.importorskip("mica._lab", reason="the Lab is not part of this build")
    import json
    import signal
    from urllib.request import Request, urlopen

    # A shell starts background jobs so that they ignore the signal that ends this one.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from mica.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "trace", "--lab", "--no-browser", str(EXAMPLE)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            url = process.stdout.readline().split()[-1].removesuffix("#j")
            while "The program has ended" not in (line := process.stderr.readline()):
                assert line, "the program ended without saying so"
            request = Request(f"{url}api/run", data=b"{}", headers={"Content-Type": "application/json"})
            with urlopen(request, timeout=20) as response:
                report = json.load(response)["value"]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
    copies = {int(row["line"].rpartition(":")[2]) for row in report["copies"]}
    assert set(marked("a copy")) <= copies and report["state"] == "ended"
    assert [int(row["line"].rpartition(":")[2]) for row in report["leaks"]] == marked("a leak")


def test_parts_can_be_chosen(tmp_path):
    done = trace("--copies", "-o", "c.html", EXAMPLE, cwd=tmp_path)
    page = (tmp_path / "c.html").read_text()
    assert done.returncode == 0 and "Hidden copies" in page and "Memory over time" not in page


@pytest.mark.parametrize(
    ("program", "status", "words"),
    [
        ("import sys\nimport torch\nsys.exit(3)\n", 3, ""),
        ("import torch\nraise ValueError('mine')\n", 1, "ValueError: mine"),
        ("import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)\n", 1, "cannot be multiplied"),
    ],
)
def test_a_program_ends_as_it_would(tmp_path, program, status, words):
    script = tmp_path / "script.py"
    script.write_text(program)
    done = trace(script, cwd=tmp_path)
    assert done.returncode == status and words in done.stderr and (tmp_path / "mica-trace.html").exists()
    assert "trace.py" not in done.stderr.split("The whole report")[0]


def test_arguments_and_modules(tmp_path):
    (tmp_path / "said.py").write_text("import sys\nprint(sys.argv[1:], __name__)\n")
    assert "['--copies', 'x'] __main__" in trace("said.py", "--copies", "x", cwd=tmp_path).stdout
    assert "['y'] __main__" in trace("-m", "said", "y", cwd=tmp_path).stdout


def test_what_cannot_be(tmp_path):
    assert "can't write" in trace("-o", "/nowhere/r.html", EXAMPLE, cwd=tmp_path).stderr
    assert "can't open file" in trace("nothing.py", cwd=tmp_path).stderr
    assert trace(cwd=tmp_path).returncode == 2
