"""The instruction set that kernels run with, and the variable that asks for a lower one."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import mica
x = mica.linspace(-3, 3, 10007, dtype=mica.float64)
a = mica.arange(130 * 70, dtype=mica.int64).view(130, 70) % 11
print(mica.backends.cpu.get_cpu_capability())
print((a @ a.T).sum().item(), x.clamp(-1, 1).eq(1).sum().item(), x.sort(descending=True).indices[:3].tolist())
"""


def run(capability):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("ATEN_CPU_CAPABILITY", None)
    if capability:
        env["ATEN_CPU_CAPABILITY"] = capability
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    return *done.stdout.splitlines(), done.stderr


def test_a_lower_instruction_set_computes_the_same():
    best, expected, _ = run(None)
    lower, values, said = run("avx2")
    assert values == expected and not said
    if platform.machine() == "x86_64":
        assert best in ("AVX2", "AVX512") and lower == "AVX2"
    else:
        assert best == lower == "DEFAULT"


@pytest.mark.parametrize("capability", ["avx512", "default"])
def test_other_names_of_torch_are_taken(capability):
    assert run(capability)[1:] == run(None)[1:]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has kernels for two instruction sets")
def test_an_unknown_name_is_ignored_and_said():
    shown, values, said = run("avx3")
    assert (shown, values) == run(None)[:2]
    assert "ATEN_CPU_CAPABILITY=avx3 is ignored; it may be avx512, avx2 or default" in said
