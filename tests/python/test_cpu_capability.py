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
print(mica.backends.cpu.get_cpu_capability(), mica._C._build_info()["compiled_targets"])
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
    assert values == expected
    if best == "AVX512 AVX3":  # a build for this machine has no lower one
        assert lower == best
        assert "ATEN_CPU_CAPABILITY=avx2 is ignored; this library was built for AVX-512 alone" in said
    elif platform.machine() == "x86_64":
        name, compiled = best.split(" ", 1)
        assert name in ("AVX2", "AVX512") and lower == f"AVX2 {compiled}" and not said
    else:
        assert best == lower == "DEFAULT NEON" and not said


def test_other_names_of_torch_are_taken():
    assert run("avx512")[1:] == run(None)[1:]
    assert run("default")[1] == run(None)[1]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has two instruction sets")
def test_an_unknown_name_is_ignored_and_said():
    shown, values, said = run("avx3")
    assert (shown, values) == run(None)[:2]
    assert "ATEN_CPU_CAPABILITY=avx3 is ignored; it may be avx512, avx2 or default" in said
