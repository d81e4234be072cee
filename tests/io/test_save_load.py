"""Saving and loading, without torch: what torch wrote (tests/recorded/files) opens, what Mica saves comes back."""

import collections
import gzip
import io
import mmap
import os
import pickle
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import mica
import pytest
from mica import serialization

FILES = Path(__file__).parents[1] / "recorded" / "files"


def round_trip(obj, load_options=None, **save_options):
    buffer = io.BytesIO()
    mica.save(obj, buffer, **save_options)
    buffer.seek(0)
    return mica.load(buffer, **(load_options or {}))


# ---- torch's files


@pytest.mark.parametrize("name", ["values.pt", "values_legacy.pt", "values_protocol4.pt"])
@pytest.mark.parametrize("weights_only", [True, False])
def test_torch_wrote_it(name, weights_only):
    d = mica.load(FILES / name, weights_only=weights_only)
    x = mica.arange(12.0).reshape(3, 4)
    assert d["matrix"].tolist() == x.tolist() and d["transposed"].tolist() == x.t().tolist()
    assert d["transposed"].stride() == (1, 4) and d["row"].storage_offset() == 4
    assert d["row"].untyped_storage() is d["matrix"].untyped_storage() is d["transposed"].untyped_storage()
    assert d["expanded"].stride() == (0,) and d["expanded"].tolist() == [5, 5, 5]
    assert d["scalar"].item() == 2.5 and d["empty"].shape == (0, 3)
    assert isinstance(d["parameter"], mica.nn.Parameter) and d["parameter"].tolist() == [1, -1]
    assert d["needs grad"].requires_grad and not d["matrix"].requires_grad
    assert d["conjugated"].tolist() == [1 - 2j, 3 + 4j] and d["conjugated"].is_conj()
    assert d["tagged"].note == "kept"
    assert type(d["ordered"]) is collections.OrderedDict and d["ordered"] == {"a": 1, "b": [2, (3, None)]}
    assert d["plain"] == [
        *(True, False, None, 7, -(2**40), 2**100, 0.1, "t\u00e9xt", b"\x00\xff", bytearray(b"ab"), {1, 2}, 1 + 2j)
    ]
    assert d["types"] == [mica.float32, mica.bfloat16, mica.Size([2, 3]), mica.device("cuda", 1), mica.strided]
    assert type(d["types"][2]) is mica.Size
    if "meta" in d:
        assert d["meta"].is_meta and d["meta"].shape == (2, 3)
        for dtype, tensor in d["dtypes"].items():
            assert str(tensor.dtype) == f"torch.{dtype}"
            assert tensor.to(mica.complex64 if tensor.is_complex() else mica.float32).tolist() == [0, 1, 1, 0]


def test_torch_trained_it():
    d = mica.load(FILES / "training.pt")
    assert d["epoch"] == 3 and list(d["model"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert d["model"]._metadata[""] == {"version": 1}
    assert d["optimizer"]["param_groups"][0]["lr"] == 0.01 and d["optimizer"]["state"][0]["step"].item() == 1
    assert d["rng"].dtype == mica.uint8


def test_torch_wrote_a_whole_module():
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.nn\.modules\.container\.Sequential"):
        mica.load(FILES / "module.pt")
    assert "torch.nn.modules.linear.Linear" in serialization.get_unsafe_globals_in_checkpoint(FILES / "module.pt")
    model = mica.load(FILES / "module.pt", weights_only=False)
    assert type(model) is mica.nn.Sequential and type(model[0]) is mica.nn.Linear
    mica.manual_seed(0)
    expected = mica.nn.Linear(3, 2)
    x = mica.ones(2, 3)
    mica.testing.assert_close(model(x), mica.tanh(expected(x)))


def test_without_checksums():
    assert mica.load(FILES / "without_checksums.pt").tolist() == list(range(5))


# ---- back and forth


# Dtypes that no number casts to are saved in tests/core/test_storage_dtypes.py, quantized tensors in
# tests/layouts/test_quantized.py.
DTYPES = [
    value
    for value in vars(mica).values()
    if isinstance(value, mica.dtype)
    and not re.fullmatch(r"torch\.(u?int[1-7]|q\w+|bits\w+|float4_e2m1fn_x2)", str(value))
]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", sorted(set(DTYPES), key=str), ids=str)
def test_every_dtype(dtype, zipped):
    x = mica.tensor([0, 1, 1]).to(dtype)
    y = round_trip(x, _use_new_zipfile_serialization=zipped)
    assert y.dtype == dtype and bytes(y.untyped_storage()) == bytes(x.untyped_storage())


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("weights_only", [True, False])
def test_protocols(protocol, weights_only):
    x = mica.arange(4.0)
    obj = {"x": x, "y": [x[1:], mica.nn.Parameter(x)], "t": (mica.int8, mica.Size([1]), mica.device("cpu"))}
    back = round_trip(obj, {"weights_only": weights_only}, pickle_protocol=protocol)
    assert back["x"].tolist() == x.tolist() and back["y"][0].untyped_storage() is back["x"].untyped_storage()
    assert back["t"] == obj["t"] and isinstance(back["y"][1], mica.nn.Parameter)


def test_names_in_files_are_torchs():
    buffer = io.BytesIO()
    mica.save({"x": mica.nn.Parameter(mica.ones(2)), "d": mica.float16}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        assert set(archive.namelist()) >= {f"archive/{name}" for name in ("data.pkl", "version", "byteorder", "data/0")}
        assert archive.testzip() is None
        assert archive.read("archive/version") == b"3\n"
        data = archive.read("archive/data.pkl")
    assert b"mica" not in data and b"ctorch._utils\n_rebuild_parameter" in data and b"ctorch\nFloatStorage" in data
    offset = buffer.getvalue().index(mica.ones(2).numpy().tobytes())
    assert offset % 64 == 0


def test_sharing_is_kept_and_types_must_agree():
    x = mica.arange(4, dtype=mica.int32)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        round_trip([x, x.view(mica.float32)])
    a, b = round_trip([x, x[::2]])
    a[0] = 9
    assert b.tolist() == [9, 2]


def test_reversed_views_are_saved_as_torch_can_read_them():
    assert round_trip(mica.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert round_trip(mica.arange(4)[::-1]).stride() == (1,)


class Point:
    def __init__(self, x):
        self.x = x


class Keeping(mica.Tensor):
    def __getstate__(self):
        return "kept", mica.arange(2)

    def __setstate__(self, state):
        self.kept = state


class Tagged(mica.Tensor):
    pass


def test_safe_globals():
    buffer = io.BytesIO()
    mica.save(Point(mica.ones(2)), buffer)

    def loaded():
        buffer.seek(0)
        return mica.load(buffer)

    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed.*Point"):
        loaded()
    with serialization.safe_globals([Point]):
        assert loaded().x.tolist() == [1, 1]
        assert serialization.get_safe_globals() == [Point]
    with pytest.raises(pickle.UnpicklingError):
        loaded()
    serialization.add_safe_globals([(Point, f"{__name__}.Point")])
    assert loaded().x.tolist() == [1, 1]
    serialization.clear_safe_globals()
    assert not serialization.get_safe_globals()


def test_subclasses_and_attributes():
    x = mica.ones(2).as_subclass(Tagged)
    x.note = [1]
    with serialization.safe_globals([Tagged]):
        back = round_trip(x)
    assert type(back) is Tagged and back.note == [1]
    with serialization.safe_globals([Keeping]):
        word, tensor = round_trip(mica.ones(2).as_subclass(Keeping)).kept
    assert word == "kept" and tensor.tolist() == [0, 1]
    y = mica.ones(2)
    y.note = "plain"
    assert round_trip(y).note == "plain"


def test_pickle_module_and_arguments():
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        round_trip(1, {"pickle_module": pickle, "weights_only": True})
    assert round_trip(Point(1), {"pickle_module": pickle}).x == 1
    with pytest.warns(UserWarning, match="pickle_load_args"):
        round_trip(1, {"errors": "strict"})


# ---- files


def test_paths_and_file_objects(tmp_path):
    x = {"x": mica.arange(3)}
    for path in (tmp_path / "a.pt", str(tmp_path / "b.pt"), tmp_path / "\u00fcnicode.pt"):
        mica.save(x, path)
        assert mica.load(path)["x"].tolist() == [0, 1, 2]
    with open(tmp_path / "c", "wb") as f:
        f.write(b"before")
        mica.save(x, f)
    with open(tmp_path / "c", "rb") as f:
        f.seek(6)
        assert mica.load(f)["x"].tolist() == [0, 1, 2]
    with gzip.open(tmp_path / "d.gz", "wb") as f:
        mica.save(x, f)
    with gzip.open(tmp_path / "d.gz", "rb") as f:
        assert mica.load(f)["x"].tolist() == [0, 1, 2]
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "b.pt", "c", "d.gz", "\u00fcnicode.pt"]
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        mica.save(x, tmp_path / "no" / "x.pt")
    with pytest.raises(AttributeError, match="'write' attribute"):
        mica.save(x, 3)
    with pytest.raises(FileNotFoundError):
        mica.load(tmp_path / "absent")
    with pytest.raises(AttributeError, match="seekable"):
        mica.load(3)


def test_a_failed_save_leaves_the_file(tmp_path):
    path = tmp_path / "model.pt"
    mica.save(1, path)
    before = path.read_bytes()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        mica.save({"x": mica.ones(1000), "f": lambda: 0}, path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        mica.save(lambda: 0, path, _use_new_zipfile_serialization=False)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.pt"]


def test_a_crash_in_the_middle_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "model.pt"
    mica.save({"x": mica.zeros(10)}, path)
    program = """
import os, signal, sys, mica
writer = mica._C.PyTorchFileWriter(sys.argv[1])
writer.write_record("data.pkl", b"x" * 100000, 100000)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program, str(path)], env=environment, check=False).returncode == -9
    assert mica.load(path)["x"].tolist() == [0] * 10


def test_permissions_and_links(tmp_path):
    path = tmp_path / "model.pt"
    mica.save(1, path)
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    path.chmod(0o600)
    mica.save(2, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    link = tmp_path / "latest.pt"
    link.symlink_to(path)
    mica.save(3, link)
    assert link.is_symlink() and mica.load(path) == 3
    mica.save(1, "/dev/null")


def test_mmap(tmp_path):
    path = tmp_path / "model.pt"
    mica.save({"a": mica.arange(1000.0), "b": mica.arange(10)[3:]}, path)
    loaded = mica.load(path, mmap=True)
    assert loaded["a"].tolist() == list(range(1000)) and loaded["b"].tolist() == list(range(3, 10))
    loaded["a"][0] = 7  # stays here
    assert mica.load(path)["a"][0].item() == 0
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        mica.load(path, mmap=True)["a"][0] = 8
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    with pytest.raises(ValueError, match="f must be a file path"):
        mica.load(io.BytesIO(path.read_bytes()), mmap=True)
    mica.save(1, path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        mica.load(path, mmap=True)


def test_map_location(tmp_path):
    path = tmp_path / "model.pt"
    mica.save(mica.arange(3), path)
    seen = []

    def place(storage, location):
        seen.append((type(storage), location))

    for where in ("cpu", mica.device("cpu"), {"cpu": "cpu"}, {}, place, lambda storage, location: storage):
        assert mica.load(path, map_location=where).tolist() == [0, 1, 2]
    assert seen == [(mica.UntypedStorage, "cpu")]
    meta = mica.load(path, map_location="meta")
    assert meta.is_meta and meta.shape == (3,)
    with pytest.raises(RuntimeError, match="don't know how to restore"):
        mica.load(path, map_location="nowhere")
    if not mica.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA device"):
            mica.load(path, map_location="cuda:0")


def test_skip_data(tmp_path):
    path = tmp_path / "model.pt"
    with serialization.skip_data():
        mica.save(mica.ones(1000), path)
        assert mica.load(path).shape == (1000,)
    assert mica.load(path).tolist() == [0] * 1000
    with serialization.skip_data(), pytest.raises(RuntimeError, match="skip_data"):
        mica.save(1, path, _use_new_zipfile_serialization=False)


def test_endianness():
    assert serialization.get_default_load_endianness() is None
    with pytest.raises(TypeError):
        serialization.set_default_load_endianness("big")
    buffer = io.BytesIO()
    mica.save(mica.arange(3, dtype=mica.int16), buffer, _disable_byteorder_record=True)
    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        buffer.seek(0)
        assert mica.load(buffer).tolist() == [0, 256, 512]
    finally:
        serialization.set_default_load_endianness(None)


def test_register_package():
    serialization.register_package(
        5, lambda storage: None, lambda storage, location: storage if location == "elsewhere" else None
    )
    try:
        assert round_trip(mica.arange(2), {"map_location": "elsewhere"}).tolist() == [0, 1]
    finally:
        from mica._checkpoints import locations

        locations._packages.pop(0)


def test_environment_decides(monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        round_trip(Point(1), {"weights_only": False})
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        assert round_trip(Point(1)).x == 1


def test_import_mica_leaves_files_alone():
    program = "import sys, mica; print([m for m in sys.modules if m.startswith('mica.') and 'serialization' in m])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_safetensors_file_that_lies(tmp_path):
    path = tmp_path / "x.safetensors"
    for header in [
        b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,32]}}',
        b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,64]}}',
        b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,32]}}',
        b'{"a":{"dtype":"F3","shape":[8],"data_offsets":[0,32]}}',
        b'{"a":{"dtype":"F32","shape":[-8],"data_offsets":[0,32]}}',
        b'{"a":[1]}',
        b"[]",
        b"{",
    ]:
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 32)
        with pytest.raises(RuntimeError, match="x.safetensors"):
            mica.load(path)
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(RuntimeError, match="x.safetensors"):
        mica.load(path)


def test_safetensors_of_a_program_that_imports_torch(tmp_path):
    pytest.importorskip("safetensors")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch\n"
        "from safetensors.torch import load_file, save_file\n"
        "save_file({'a': torch.arange(6.).reshape(2, 3), 'b': torch.ones(2, dtype=torch.bfloat16)}, sys.argv[1])\n"
        "loaded = load_file(sys.argv[1])\n"
        "print(loaded['a'].tolist(), loaded['b'].tolist(), loaded['b'].dtype)\n"
    )
    command = [sys.executable, "-m", "mica", "run", program, tmp_path / "x.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] [1.0, 1.0] torch.bfloat16", done.stderr


class OnlySlots:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


class SlotsAndMore(OnlySlots):
    def __init__(self, x, y, z):
        super().__init__(x, y)
        self.z = z


def test_objects_with_slots_are_read_by_weights_only():
    for saved, names in ((OnlySlots(1, mica.ones(2)), "xy"), (SlotsAndMore(1, mica.ones(2), "z"), "xyz")):
        file = io.BytesIO()
        mica.save(saved, file)
        file.seek(0)
        with mica.serialization.safe_globals([type(saved)]):
            loaded = mica.load(file, weights_only=True)
        assert type(loaded) is type(saved) and loaded.x == 1 and mica.equal(loaded.y, mica.ones(2))
        assert all(hasattr(loaded, name) for name in names)
