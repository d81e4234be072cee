"""The `mica` command and `python -m mica`."""

import os
import pathlib
import subprocess
import sys

import mica
import pytest

# Found from any directory.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(mica.__file__).parent.parent.absolute())}


def mica_command(*args, **kwargs):
    command = [sys.executable, "-m", "mica", *args]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, **kwargs)


def run(tmp_path, program, *args):
    script = tmp_path / "script.py"
    script.write_text(program)
    return mica_command(str(script), *args)


def succeed(tmp_path, program, *args):
    done = run(tmp_path, program, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_mica(tmp_path):
    program = """
import torch
import torch.nn.functional as F
import torch.utils.dlpack
from torch import nn, Tensor
from torch.nn import functional
import mica, mica.nn.functional, sys
assert torch is mica and F is mica.nn.functional is functional and nn is mica.nn and Tensor is mica.Tensor
assert torch.utils.dlpack is mica.utils.dlpack and mica.nn.__spec__.name == 'mica.nn' and torch.torch is torch
print(torch.ones(2) + 1)
from torch.autograd.gradcheck import GradcheckError
assert callable(torch.autograd.gradcheck)  # the function, not the module of that name
"""
    assert succeed(tmp_path, program) == "tensor([2., 2.])\n"


def test_main_and_arguments(tmp_path):
    (tmp_path / "neighbour.py").write_text("import torch\nvalue = 7\n")
    program = """
import sys, neighbour, __main__
assert __name__ == '__main__' and __main__.neighbour is neighbour and __file__ == sys.argv[0]
print(sys.argv[1:], neighbour.value)
"""
    assert succeed(tmp_path, program, "-x", "--flag", "a b") == "['-x', '--flag', 'a b'] 7\n"


def test_what_is_missing(tmp_path):
    done = run(tmp_path, "import torch.nothing_here")
    assert done.returncode == 1
    assert (
        "No module named 'torch.nothing_here': torch is Mica here, and Mica has no 'mica.nothing_here'" in done.stderr
    )


def test_tracebacks_begin_in_the_program(tmp_path):
    done = run(tmp_path, "import torch\ndef f():\n    torch.ones(2) @ torch.ones(3)\nf()\n")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('script.py", line 4, in <module>') and "cli.py" not in done.stderr
    done = run(tmp_path, "x = (\n")
    assert done.returncode == 1 and "SyntaxError" in done.stderr and "cli.py" not in done.stderr


@pytest.mark.parametrize(("statement", "status"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no')", 1)])
def test_exit_status(tmp_path, statement, status):
    assert run(tmp_path, f"import sys; {statement}").returncode == status


def test_modules(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys, torch; print(torch.__name__, sys.argv[1:])")
    done = mica_command("run", "-m", "pack", "-v", cwd=tmp_path)
    assert done.stdout == "torch ['-v']\n", done.stderr


def test_a_file_that_is_not_there():
    done = mica_command("run", "/no/such/file.py")
    assert done.returncode == 1 and "can't open file '/no/such/file.py'" in done.stderr


def test_version_and_usage():
    assert mica_command("--version").stdout == f"mica {mica.__version__}\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--help"], "usage: mica COMMAND"),
        (["help", "run"], "usage: mica run script.py"),
        (["run", "--help"], "usage: mica run script.py"),
        (["run", "-h"], "All arguments after the script"),
        (["demo", "--help"], "usage: mica demo"),
        (["doctor", "--help"], "usage: mica doctor"),
        (["help", "check"], "usage: mica check"),
        (["help", "trace"], "usage: mica trace"),
        (["help", "lab"], "usage: mica lab"),
    ],
)
def test_help(words, text):
    done = mica_command(*words)
    assert (done.returncode, done.stderr) == (0, "") and text in done.stdout


def test_help_of_the_program_is_its_own(tmp_path):
    assert succeed(tmp_path, "import sys; print(sys.argv[1:])", "--help") == "['--help']\n"


@pytest.mark.parametrize(
    "words", [["help", "nothing"], ["run"], ["run", "-m"], ["demo", "now"], ["doctor", "x"], ["-q"]]
)
def test_misuse_is_said_on_standard_error(words):
    done = mica_command(*words)
    assert done.returncode == 2 and done.stdout == "" and "usage: mica" in done.stderr


def test_doctor():
    done = mica_command("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["mica", "python", "cpu", "devices"]
    assert f"  version {mica.__version__}, which behaves as torch 2.13" in lines
    assert f"  threads {mica.get_num_threads()}" in done.stdout or "NUM_THREADS" in done.stdout
    info = mica._C._build_info()
    assert info["cpu_target"] and info["cpu_target"] in info["compiled_targets"].split(", ")
    assert any(info["cpu_target"] in line for line in lines) and "  cpu" in lines
    if not mica.cuda.is_available():
        assert any(line.startswith("  cuda none: ") and len(line) > 20 for line in lines)
    assert mica_command("--version", "-v").stdout == done.stdout


def test_demo():
    done = mica_command("demo", timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) < 80 and "\033" not in done.stdout
    for part in ("flat memory", "told apart", "Broadcasting", "A gradient", "Beside NumPy", "dy/dx = 12"):
        assert part in done.stdout
