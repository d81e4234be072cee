"""`mica check`: the lines that copy, wait and promote."""

import json
import subprocess
import sys

import mica
import pytest

PROGRAM = """\
import torch
x = torch.ones(4, 5)
y = x.t().reshape(-1)
if x.sum() > 0:
    n = x.max().item()
z = x + torch.ones(5, dtype=torch.float64)
w = x + torch.tensor(2.0, dtype=torch.float64)
v = x[x > 0]
for _ in range(3):
    float(x[0, 0])
clean = (x * 2 + 1).view(-1)
print("the program's own words")
"""


def run(tmp_path, source, *options):
    (tmp_path / "train.py").write_text(source)
    command = [sys.executable, "-c", "from mica.cli import main; main()", "check", *options, "train.py"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)


def test_lines_are_named_as_a_compiler_names_them(tmp_path):
    done = run(tmp_path, PROGRAM)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and "own words" in done.stderr and "own words" not in done.stdout
    found = {(int(line.split(":")[1]), line.split(":")[3].strip()) for line in lines}
    assert all(line.startswith("train.py:") for line in lines)
    assert found >= {(3, "copy"), (4, "wait"), (5, "wait"), (6, "promote"), (8, "wait"), (10, "wait")}
    assert not any(line in (7, 11) for line, _ in found)
    assert any("float32 (4, 5) becomes float64 because of a tensor of float64" in line for line in lines)
    assert any(line.startswith("train.py:10:") and line.endswith("(3 times)") for line in lines)
    assert any("cannot be seen in the new shape" in line for line in lines)


def test_json_and_steps(tmp_path):
    source = """\
import torch
m = torch.nn.Linear(3, 3)
o = torch.optim.SGD(m.parameters(), lr=0.1)
while True:
    loss = m(torch.ones(2, 3)).sum()
    print(loss.item())
    o.zero_grad()
    loss.backward()
    o.step()
"""
    done = run(tmp_path, source, "--json", "--steps", "4")
    (finding,) = json.loads(done.stdout)
    assert (finding["line"], finding["kind"], finding["times"]) == (6, "wait", 4) and done.returncode == 1


def test_a_clean_program_and_one_that_fails(tmp_path):
    assert run(tmp_path, "import torch\nx = torch.ones(3) * 2\n").returncode == 0
    done = run(tmp_path, "import torch\ntorch.ones(3).sum().item()\nraise ValueError('mine')\n")
    assert done.returncode == 2 and "mine" in done.stderr and "train.py:2:1: wait" in done.stdout
    assert run(tmp_path, "", "--steps", "0").returncode == 2


@pytest.mark.parametrize("dtype", [mica.int64, mica.int32])
def test_integers_that_become_floats_are_promoted(dtype):
    with mica.inspect.check() as found:
        mica.ones(3, dtype=dtype) + mica.ones(3)
        mica.ones(3) * 2
        mica.ones(3, dtype=mica.bool) * mica.ones(3)  # a mask is meant to be one
    (finding,) = found.findings
    assert finding.kind == "promote" and finding.bytes == 12 and finding.file.endswith("test_check.py")
