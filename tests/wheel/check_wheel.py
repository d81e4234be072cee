"""Installs the wheels of a folder into an empty environment and uses them as a stranger would.

usage: check_wheel.py FOLDER

Run by `make test-wheel`; needs no Mica of its own. It ends with an error at the first thing that does not work.
"""

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent

PYTHON = """
import pathlib
import mica as torch
assert "site-packages" in mica_file, mica_file
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
x = torch.randn(64, 3)
y = x.sum(1, keepdim=True)
losses = []
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.2 * losses[0], losses
torch.save(model.state_dict(), "weights.pt")
model.load_state_dict(torch.load("weights.pt"))
a = torch.randn(5, 5, dtype=torch.float64)
assert torch.allclose(a @ torch.linalg.inv(a), torch.eye(5, dtype=torch.float64))  # a LAPACK comes with it
assert torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(0.0)).item() < 0
prefix = pathlib.Path(torch.utils.cmake_prefix_path)
assert (prefix / "lib" / "cmake" / "mica" / "mica-config.cmake").exists(), prefix
assert (prefix / "include" / "mica" / "mica.h").exists() and (prefix / "py.typed").exists()
print(prefix)
""".replace("mica_file", "torch.__file__")


def run(*command, **options):
    print("  $", *(str(word) if "\n" not in str(word) else "..." for word in command), flush=True)
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\ncheck_wheel: that ended with {done.returncode}")
    return done.stdout.strip()


# Two processes that say they are on two hosts, which talk through the Gloo inside the wheel.
HOSTS = """
import os, subprocess, sys
if "RANK" not in os.environ:
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, "-I", __file__], env={**common, "RANK": rank, "MICA_DISTRIBUTED_HOST": rank})
        for rank in "01"
    ]
    sys.exit(max(rank.wait() for rank in ranks))
import mica as torch, mica.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [2, 2, 2]
libraries = open("/proc/self/maps").read()
assert "site-packages/mica/lib/libgloo_mica.so" in libraries and "ibverbs" not in libraries
dist.destroy_process_group()
"""


def check_python(python, folder):
    prefix = run(python, "-I", "-c", PYTHON, cwd=folder)
    (folder / "hosts.py").write_text(HOSTS)
    run(python, "-I", folder / "hosts.py", cwd=folder)
    run(python.parent / "mica", "doctor", cwd=folder)
    (folder / "train.py").write_text("import torch\nprint(torch.arange(3.0).square().sum())\n")
    assert run(python.parent / "mica", "run", "train.py", cwd=folder) == "tensor(5.)"
    return prefix


def check_cpp(prefix, folder):
    """A project outside of the tree that finds the package by CMake, with the library of distributions."""
    build = folder / "project"
    run("cmake", "-S", HERE / "project", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", build)
    print(run(build / "sample"))


def main():
    wheels = sorted(Path(sys.argv[1]).resolve().glob("*.whl"))
    own = [wheel for wheel in wheels if wheel.name.startswith("mica-")]
    assert len(own) == 1 and len(wheels) == 2, f"one wheel of each kind is wanted, not {[w.name for w in wheels]}"
    megabytes = own[0].stat().st_size / 1e6
    assert megabytes < 25, f"the wheel has {megabytes:.1f} MB"
    folder = Path(tempfile.mkdtemp(prefix="mica-wheel-"))
    try:
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", own[0])
        prefix = check_python(python, folder)
        check_cpp(prefix, folder)
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", *wheels)
        assert run(python, "-I", "-c", "import torch; print(torch.tensor([2, 3]).prod())") == "tensor(6)"
    finally:
        shutil.rmtree(folder)
    print(f"{own[0].name}: {megabytes:.1f} MB, works in an empty environment, from Python and from C++")


if __name__ == "__main__":
    main()
