"""The examples in small: they run, and learn."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from example_cases import ON_MICA, run

SMALL = {
    "linear_regression": ["--steps", "60"],
    "mlp": ["--steps", "60"],
    "digits": ["--steps", "40", "--images", "800"],
    "gpt": ["--steps", "40", "--batch", "8", "--context", "32", "--width", "32", "--layers", "2", "--tell", "40"],
    "lstm": ["--steps", "40", "--batch", "8", "--context", "32", "--width", "32", "--tell", "40"],
}


@pytest.mark.parametrize("name", SMALL)
def test_learns(name):
    _, losses = run(ON_MICA, name, *SMALL[name])
    assert len(losses) == int(SMALL[name][1])
    tenth = len(losses) // 10
    assert sum(losses[-tenth:]) < 0.85 * sum(losses[:tenth])


def test_finds_the_line():
    printed, _ = run(ON_MICA, "linear_regression")
    assert printed[-2].startswith("y = 2.0") or printed[-2].startswith("y = 1.9"), printed


def test_reads_digits_it_has_not_seen():
    printed, _ = run(ON_MICA, "digits", "--steps", "120", "--images", "2000")
    read = next(line for line in printed if line.startswith("reads "))
    assert float(read.split()[1].rstrip("%")) > 90, read


def test_workers_change_nothing():
    arguments = ["--steps", "8", "--images", "400"]
    _, alone = run(ON_MICA, "digits", *arguments)
    _, with_workers = run(ON_MICA, "digits", *arguments, "--workers", "2")
    assert alone == with_workers


def test_tells_as_much_as_asked():
    printed, _ = run(ON_MICA, "gpt", *SMALL["gpt"])
    tale = "\n".join(printed).split("\nOnce ", 1)[1]
    assert len(tale.rstrip("\n")) >= 30


def test_demo_without_torch():
    demo = Path(__file__).resolve().parents[2] / "examples" / "demo.py"
    command = [*ON_MICA, str(demo), "--minutes", "0.02", "--compare-seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "tokens a second" in done.stdout and "Once " in done.stdout


def test_tales_are_what_their_grammar_writes(tmp_path):
    data = Path(__file__).resolve().parents[2] / "examples" / "data"
    shutil.copy(data / "write_tales.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "write_tales.py"], check=True)
    assert (tmp_path / "tales.txt").read_bytes() == (data / "tales.txt").read_bytes()
