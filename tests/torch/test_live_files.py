"""Checkpoints between Mica and torch, in both directions."""

import collections
import importlib
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import mica  # noqa: E402
from mica import serialization  # noqa: E402
from mica._checkpoints.names import find_class, name_in_file  # noqa: E402

pytestmark = pytest.mark.torch

# No number casts to integers below a byte, bits and pairs; quantized tensors are made by other calls. Files of them are
# tested in tests/core and tests/io.
DTYPES = sorted(
    name
    for name in {str(value).removeprefix("torch.") for value in vars(mica).values() if isinstance(value, mica.dtype)}
    if not re.fullmatch("u?int[1-7]|qu?int.*|bits.*|float4_e2m1fn_x2", name)
)
WITHOUT_STORAGE_CLASS = {"complex32", "uint16", "uint32", "uint64"} | {name for name in DTYPES if "float8" in name}


def carried(source, target, obj, load_options=None, **save_options):
    buffer = io.BytesIO()
    source.save(obj, buffer, **save_options)
    buffer.seek(0)
    return target.load(buffer, **(load_options or {}))


def outcome(lib, data, **options):
    try:
        return lib.load(io.BytesIO(data), **options)
    except Exception as error:
        return error


@pytest.fixture(params=["to torch", "from torch"])
def libraries(request):
    return (mica, torch) if request.param == "to torch" else (torch, mica)


def values(lib):
    x = lib.arange(12.0).reshape(3, 4)
    tagged = lib.tensor([1.0, 2.0])
    tagged.note = "kept"
    return {
        "matrix": x,
        "transposed": x.t(),
        "row": x[1],
        "expanded": lib.tensor([5.0]).expand(3),
        "scalar": lib.tensor(2.5),
        "empty": lib.empty(0, 3),
        "parameter": lib.nn.Parameter(lib.tensor([1.0, -1.0])),
        "needs grad": lib.ones(2, requires_grad=True),
        "conjugated": lib.tensor([1 + 2j, 3 - 4j]).conj(),
        "tagged": tagged,
        "ordered": collections.OrderedDict(a=1, b=[2, (3, None)]),
        "plain": [
            True,
            False,
            None,
            7,
            -(2**40),
            2**100,
            0.1,
            "t\u00e9xt",
            b"\x00\xff",
            bytearray(b"ab"),
            {1, 2},
            1 + 2j,
        ],
        "types": [lib.float32, lib.bfloat16, lib.Size([2, 3]), lib.device("cuda", 1), lib.strided],
    }


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}, {"pickle_protocol": 5}], ids=str
)
def test_values(libraries, options, weights_only):
    source, target = libraries
    if target is torch and weights_only and "pickle_protocol" in options:
        pytest.skip("torch's restricted unpickler reads protocol 2 only")
    d = carried(source, target, values(source), {"weights_only": weights_only}, **options)
    expected = values(target)
    for name in ("plain", "types", "ordered"):
        assert d[name] == expected[name]
    for name in set(expected) - {"plain", "types", "ordered"}:
        assert d[name].tolist() == expected[name].tolist(), name
        assert d[name].dtype == expected[name].dtype and d[name].shape == expected[name].shape
        assert d[name].stride() == expected[name].stride() and d[name].requires_grad == expected[name].requires_grad
        assert type(d[name]) is type(expected[name])
    assert d["row"].data_ptr() == d["matrix"].data_ptr() + 16 and d["tagged"].note == "kept"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(libraries, dtype, zipped):
    if not zipped and dtype in WITHOUT_STORAGE_CLASS:
        pytest.skip("torch cannot read these from the old format itself")
    source, target = libraries
    x = source.tensor([0, 1, 1, 0]).to(getattr(source, dtype))
    y = carried(source, target, x, _use_new_zipfile_serialization=zipped)
    assert str(y.dtype) == f"torch.{dtype}" and bytes(y.untyped_storage()) == bytes(x.untyped_storage())


def test_the_same_bytes(tmp_path):
    """But for the fingerprint, at the end."""
    files = []
    for lib in (torch, mica):
        path = tmp_path / lib.__name__ / "model.pt"
        path.parent.mkdir()
        d = values(lib)
        del d["conjugated"]
        lib.save(d, path)
        files.append(path.read_bytes())
    end = files[0].index(b"model/.data/serialization_id")
    assert files[0][:end] == files[1][:end] and len(files[0]) == len(files[1])
    with zipfile.ZipFile(tmp_path / "mica" / "model.pt") as archive:
        assert archive.testzip() is None


def test_torch_maps_micas_files(tmp_path):
    path = tmp_path / "model.pt"
    mica.save({"a": mica.arange(1000.0), "b": mica.ones(3)}, path)
    loaded = torch.load(path, mmap=True)
    assert loaded["a"].sum().item() == 499500
    meta = torch.load(path, map_location="meta")  # torch computes the offsets that the layout implies
    with open(path, "rb") as f:
        f.seek(meta["b"].untyped_storage()._checkpoint_offset)
        assert f.read(12) == torch.ones(3).numpy().tobytes()
    torch.save({"a": torch.arange(1000.0)}, path)
    assert mica.load(path, mmap=True)["a"].sum().item() == 499500


def test_large_archives(tmp_path):
    """Room for more than 4 GB, without writing it: records that lie beyond 32 bits."""
    path = tmp_path / "large.pt"
    with serialization.skip_data():
        mica.save([mica.empty(2**30 + 100), mica.empty(7)], path)
    assert path.stat().st_size > 2**32
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("large/data/0").file_size == 4 * (2**30 + 100)
    loaded = torch.load(path, mmap=True)
    assert loaded[0].shape == (2**30 + 100,) and loaded[1].tolist() == [0] * 7
    assert mica.load(path, mmap=True)[1].tolist() == [0] * 7


def model_of(lib):
    lib.manual_seed(0)
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU(), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))


def test_state_dicts(libraries):
    source, target = libraries
    model = model_of(source)
    model(source.ones(5, 3)).sum().backward()
    state = carried(source, target, model.state_dict())
    assert type(state) is collections.OrderedDict and state._metadata == model.state_dict()._metadata
    other = model_of(target)
    other.load_state_dict(state)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert a.tolist() == b.tolist()


def test_optimizer_states(libraries):
    source, target = libraries
    losses = {}
    models = {}
    for lib in (source, target):
        model = model_of(lib)
        models[lib] = (model, lib.optim.Adam(model.parameters(), lr=0.01))

    def steps(lib, count):
        model, optimizer = models[lib]
        seen = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = (model(lib.arange(15.0).reshape(5, 3)) ** 2).mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    steps(source, 3)
    checkpoint = {"model": models[source][0].state_dict(), "optimizer": models[source][1].state_dict()}
    moved = carried(source, target, checkpoint)
    models[target][0].load_state_dict(moved["model"])
    models[target][1].load_state_dict(moved["optimizer"])
    losses = steps(source, 5), steps(target, 5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_whole_modules(libraries):
    source, target = libraries
    model = model_of(source).eval()
    other = carried(source, target, model, {"weights_only": False})
    assert type(other) is target.nn.Sequential and type(other[2]) is target.nn.BatchNorm1d and not other.training
    x = [[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]]
    ours, theirs = model(source.tensor(x)), other(target.tensor(x))
    assert ours.flatten().tolist() == pytest.approx(theirs.flatten().tolist(), rel=1e-5, abs=1e-6)


class Unknown:
    pass


@pytest.mark.parametrize("obj", [Unknown(), [pickle.Pickler], {"f": eval}], ids=["own", "class", "builtin"])
def test_refusals_begin_with_the_same_words(obj):
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    theirs, ours = outcome(torch, buffer.getvalue()), outcome(mica, buffer.getvalue())
    assert type(theirs) is type(ours) is pickle.UnpicklingError
    assert str(ours).startswith("Weights only load failed. ")
    name = str(theirs).partition("GLOBAL ")[2].partition(" ")[0]
    assert f"GLOBAL {name} was not an allowed global by default" in str(ours)
    buffer.seek(0)
    listed = serialization.get_unsafe_globals_in_checkpoint(buffer)
    buffer.seek(0)
    assert sorted(listed) == sorted(torch.serialization.get_unsafe_globals_in_checkpoint(buffer))


def test_plain_pickles_of_torch():
    """Of tensors that pickle wrote by itself, inside of a checkpoint."""
    data = pickle.dumps({"x": torch.arange(3)}, 2)
    buffer = io.BytesIO()
    writer = mica._C.PyTorchFileWriter(buffer)
    writer.write_record("data.pkl", data, len(data))
    writer.write_end_of_file()
    buffer.seek(0)
    assert mica.load(buffer, weights_only=False)["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("package", ["nn", "optim", "optim.lr_scheduler", "utils.data"])
def test_classes_have_the_same_names_in_files(package):
    """Those that both have, which whole pickled objects refer to."""
    ours, theirs = importlib.import_module(f"mica.{package}"), importlib.import_module(f"torch.{package}")
    for name in sorted(set(dir(ours)) & set(dir(theirs))):
        mine, its = getattr(ours, name), getattr(theirs, name)
        if name.startswith("_") or not (isinstance(mine, type) and isinstance(its, type)):
            continue
        if not its.__module__.startswith("torch"):
            continue
        assert find_class(its.__module__, its.__qualname__) is mine
        module, _, in_module = name_in_file(mine).partition("\n")
        assert getattr(importlib.import_module(module), in_module) is its


SAFETENSORS = """
import sys
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

assert torch.__version__.endswith(torch.version.mica)
tensors = {str(d): torch.tensor([0, 1, 1]).to(d) for d in (torch.float32, torch.bfloat16, torch.int64, torch.bool)}
save_file(tensors, sys.argv[1], metadata={"by": "mica"})
for name, tensor in load_file(sys.argv[1]).items():
    assert tensor.dtype == tensors[name].dtype and tensor.tolist() == tensors[name].tolist()
with safe_open(sys.argv[1], framework="pt") as f:
    assert f.metadata() == {"by": "mica"} and f.get_slice("torch.int64")[1:].tolist() == [1, 1]
model = torch.nn.Linear(2, 2)
save_model(model, sys.argv[2])
load_model(torch.nn.Linear(2, 2), sys.argv[2])
"""


def test_safetensors_as_it_is(tmp_path):
    """The package itself, under `mica run`; then its files in torch and in mica.load."""
    package = pytest.importorskip("safetensors.torch")
    script, path = tmp_path / "program.py", str(tmp_path / "x.safetensors")
    script.write_text(SAFETENSORS)
    command = [sys.executable, "-m", "mica", "run", script, path, str(tmp_path / "model.safetensors")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    for name, tensor in package.load_file(path).items():
        assert str(tensor.dtype) == name and tensor.to(torch.int64).tolist() == [0, 1, 1]
    for name, tensor in mica.load(path).items():
        assert str(tensor.dtype) == name and tensor.to(mica.int64).tolist() == [0, 1, 1]


CPP = r"""
#include <mica/mica.h>
#include <mica/serialize.h>

int main(int, char** argv) {
  using namespace mica;
  const Value given = load(argv[1]);  // torch's
  const Tensor x = given.at("x").as_tensor();
  Value out = Value::dict({{"x", x * 2}, {"row", x[1]}, {"steps", given.at("steps")}, {"rate", 0.5}, {"name", "c++"}});
  out.set("all", Value::tuple({x, x.t(), ones({2}).to(DType::Float8_e4m3fn), Value(), Value::bytes("\xff")}));
  out.set(3, Value::list({true, int64_t{1} << 40}));
  save(out, argv[2]);
}
"""


def test_checkpoints_of_cpp_programs(tmp_path):
    compiler, build = shutil.which("g++"), Path(mica._C.__file__).parents[2]
    if compiler is None or not (build / "lib" / "libmica.so").exists():
        pytest.skip("needs a compiler and a build tree")
    (tmp_path / "program.cpp").write_text(CPP)
    include = Path(__file__).parents[2] / "include"
    command = [compiler, "-std=c++20", "program.cpp", "-o", "program", f"-I{include}", f"-I{build}/generated/include"]
    command += [f"-L{build}/lib", "-lmica", f"-Wl,-rpath,{build}/lib"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    x = torch.arange(6.0).reshape(2, 3)
    torch.save(
        {"x": torch.nn.Parameter(x), "steps": [1, (2, None)], "o": collections.OrderedDict(a=x)}, tmp_path / "in.pt"
    )
    subprocess.run([tmp_path / "program", tmp_path / "in.pt", tmp_path / "out.pt"], check=True, timeout=60)
    for lib in (torch, mica):
        d = lib.load(tmp_path / "out.pt")
        assert d["x"].tolist() == (2 * x).tolist() and d["row"].tolist() == [3, 4, 5]
        assert d["steps"] == [1, (2, None)] and d["rate"] == 0.5 and d["name"] == "c++" and d[3] == [True, 2**40]
        same, transposed, small, nothing, data = d["all"]
        assert same.requires_grad and transposed.stride() == (1, 3) and nothing is None and data == b"\xff"
        assert small.dtype == lib.float8_e4m3fn and d["row"].data_ptr() == same.data_ptr() + 12


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors(libraries, layout, weights_only):
    source, target = libraries
    parts = [source.arange(6.0).view(2, 3), source.arange(3.0).view(1, 3)]
    x = source.nested.nested_tensor(parts, layout=getattr(source, layout))
    x.to_padded_tensor(0.0)  # torch then keeps the longest length with the tensor
    loaded = carried(source, target, {"x": x}, {"weights_only": weights_only})["x"]
    assert [part.tolist() for part in loaded.unbind()] == [part.tolist() for part in parts]
