"""Torch meaning Mica: in a whole environment (`mica alias`), in children, by name, in pickles and in metadata."""

import os
import pathlib
import pickletools
import subprocess
import sys
import venv

import mica
import pytest

PACKAGE_PARENT = str(pathlib.Path(mica.__file__).parent.parent.absolute())
ROOT = pathlib.Path(__file__).parent.parent.parent


def as_torch(program, cwd=None):
    """What a program prints that runs with torch meaning Mica."""
    start = "from mica._as_torch.alias import install; install()\n"
    environment = {**os.environ, "PYTHONPATH": PACKAGE_PARENT}
    done = subprocess.run(
        [sys.executable, "-c", start + program], capture_output=True, text=True, env=environment, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_are_torchs():
    program = """
import torch
print(torch.__name__, torch.torch is torch, torch.nn.__name__, torch.nn.functional.__name__)
for thing in (torch.nn.Linear, torch.nn.LSTMCell, torch.nn.MultiheadAttention, torch.optim.Adam, torch.no_grad, torch.save,
              torch.relu, torch.nn.functional.relu, torch.einsum, torch.autocast, torch.Tensor, torch.FloatTensor):
    print(thing.__module__)
"""
    assert as_torch(program).split() == [
        "torch", "True", "torch.nn", "torch.nn.functional", "torch.nn.modules.linear", "torch.nn.modules.rnn",
        "torch.nn.modules.activation", "torch.optim.adam", "torch.autograd.grad_mode", "torch.serialization", "torch",
        "torch.nn.functional", "torch.functional", "torch.amp.autocast_mode", "torch", "torch",
    ]  # fmt: skip


def test_plain_pickles_name_only_torch(tmp_path):
    program = """
import pickle, torch
things = [torch.ones(2), torch.nn.Linear(2, 2), torch.nn.LSTM(1, 1), torch.bfloat16, torch.device('cuda', 1), torch.Size([3]),
          torch.relu, torch.nn.functional.relu, torch.strided, torch.contiguous_format, torch.nn.Parameter(torch.ones(1)),
          torch.ones(2, dtype=torch.complex64)]
pickle.dump(things, open('things', 'wb'), 2)
back = pickle.load(open('things', 'rb'))
assert torch.equal(back[0], things[0]) and torch.equal(back[1].weight, things[1].weight) and back[3:6] == things[3:6]
assert back[6] is torch.relu and back[8] is torch.strided and back[11].dtype == torch.complex64
"""
    as_torch(program, tmp_path)
    names = {
        str(arg).split()[0]
        for op, arg, _ in pickletools.genops((tmp_path / "things").read_bytes())
        if op.name == "GLOBAL"
    }
    assert names >= {"torch", "torch._utils", "torch.storage", "torch.nn.modules.linear"}
    assert not any(name.startswith("mica") for name in names)


def test_modules_of_the_engine_are_the_families():
    program = """
import torch._C._fft
import torch._C._linalg as linalg
import torch._C._sparse
from torch._C._special import special_erf
print(linalg.linalg_inv is torch.linalg.inv, torch._C._fft.fft_ihfftn is torch.fft.ihfftn, special_erf is torch.special.erf)
print(torch.fft.ihfftn(torch.ones(2)).shape, hasattr(linalg, "linalg_nothing"))
print(torch.sparse.sampled_addmm(torch.eye(2).to_sparse_csr(), torch.ones(2, 2), torch.ones(2, 2)).values().tolist())
"""
    assert as_torch(program).splitlines() == ["True True True", "torch.Size([2]) False", "[3.0, 3.0]"]


def test_a_missing_module_is_missing():
    program = """
import importlib.util, torch
assert importlib.util.find_spec('torch.no_such') is None and importlib.util.find_spec('torch.nn.modules') is not None
try:
    import torch.no_such
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    assert as_torch(program).startswith("torch.no_such No module named 'torch.no_such': torch is Mica here")


def test_children_and_metadata(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys, importlib.metadata\n"
        "print(importlib.metadata.version('torch'))\n"
        "ask = 'import importlib.metadata as m; print(m.version(\"torch\")); import torch; print(torch.__version__)'\n"
        "print(subprocess.run([sys.executable, '-c', ask], capture_output=True, text=True, check=True).stdout)\n"
    )
    environment = {**os.environ, "PYTHONPATH": PACKAGE_PARENT}
    done = subprocess.run([sys.executable, "-m", "mica", str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"2.13.0+mica.{mica.version.mica}"] * 3


@pytest.fixture
def environment(tmp_path):
    """An interpreter of its own, which has mica, and a function that runs it."""
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = pathlib.Path(subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip())
    (site / "mica.pth").write_text(PACKAGE_PARENT + "\n")

    def run(*arguments):
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run([python, *arguments], capture_output=True, text=True, env=clean, cwd=tmp_path)

    return run, site


def test_alias_on_and_off(environment):
    run, site = environment
    before = sorted(path.name for path in site.iterdir())
    assert run("-m", "mica", "alias", "status").stdout.startswith("off: this environment has no torch")
    assert run("-c", "import torch").returncode == 1
    assert run("-m", "mica", "alias", "on").returncode == 0
    assert run("-m", "mica", "alias", "on").stdout.startswith("torch means Mica already")
    assert run("-m", "mica", "alias", "status").stdout.startswith("on: torch means Mica")
    program = (
        "import importlib.metadata as m; from torch import nn; import torch; print(m.version('torch'), nn.Linear(1, 1))"
    )
    assert run("-c", program).stdout.startswith(f"2.13.0+mica.{mica.version.mica} Linear(")
    first = run(
        "-W", "error", "-c", "import functorch, torch; print(functorch.vmap.__name__, torch.nn.Linear.__module__)"
    )
    assert first.stdout.split() == ["vmap", "torch.nn.modules.linear"], first.stderr
    assert run("-m", "mica", "alias", "off").returncode == 0
    assert sorted(path.name for path in site.iterdir()) == before
    assert run("-m", "mica", "alias", "off").stdout.startswith("torch does not mean Mica")
    assert run("-m", "mica", "alias", "sideways").returncode == 2


def test_another_torch_stays(environment):
    run, site = environment
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("real = True\n")
    for action in ("on", "off"):
        done = run("-m", "mica", "alias", action)
        assert done.returncode == 1 and "it stays" in done.stderr
    assert (site / "torch" / "__init__.py").read_text() == "real = True\n"
    assert "a torch of its own" in run("-m", "mica", "alias", "status").stdout


def test_the_wheel_does_the_same(environment, tmp_path):
    run, site = environment
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "build_mica_torch.py", tmp_path / "dist"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        done.stdout.strip(),
    ]
    assert subprocess.run(install, capture_output=True).returncode == 0
    program = (
        "import importlib.metadata as m, torch; print(m.version('torch'), m.version('mica-torch'), torch.__name__)"
    )
    number = mica.version.mica
    assert run("-c", program).stdout.split() == [f"2.13.0+mica.{number}", number, "torch"]
    assert "pip uninstall mica-torch" in run("-m", "mica", "alias", "off").stderr


def test_the_metadata_has_the_version():
    folder = (
        pathlib.Path(mica.__file__).parent / "_as_torch" / "path" / f"torch-2.13.0+mica.{mica.version.mica}.dist-info"
    )
    assert f"Version: 2.13.0+mica.{mica.version.mica}\n" in (folder / "METADATA").read_text()


def test_functorch_is_deprecated_and_has_experiments():
    program = """
import torch, warnings, functorch
from functorch.experimental import chunk_vmap, replace_all_batch_norm_modules_
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    functorch.grad(torch.sum)
    functorch.vmap(torch.sin)
print([str(w.message).partition("Please use ")[2].split()[0] for w in seen], seen[0].category.__name__)
print(chunk_vmap(lambda x: x.sum(), chunks=3)(torch.ones(7, 2)).tolist())
from functorch.experimental.control_flow import cond, map
print(map(lambda x, y: x * y, torch.arange(3), 2).tolist(), cond(torch.tensor(False), torch.sin, torch.neg, [torch.ones(1)]).tolist())
"""
    assert as_torch(program).splitlines() == [
        "['`torch.func.grad`', '`torch.vmap`'] FutureWarning", "[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]", "[0, 2, 4] [-1.0]",
    ]  # fmt: skip


def test_hooks_of_modules_pickle():
    program = """
import pickle, torch
loaded = pickle.loads(pickle.dumps(torch.nn.LazyLinear(2)))
print(loaded(torch.ones(1, 3)).shape, type(loaded).__name__)
"""
    assert as_torch(program).split() == ["torch.Size([1,", "2])", "Linear"]
