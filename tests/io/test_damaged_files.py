"""Damaged checkpoints: an error that says where, never a crash."""

import contextlib
import io
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import mica
import pytest


def sample():
    x = mica.arange(200.0).reshape(10, 20)
    return {"x": x, "view": x[2:4].t(), "p": mica.nn.Parameter(mica.ones(3)), "n": 3, "s": "text", "l": [1, 2.5, None]}


def saved(obj, **options):
    buffer = io.BytesIO()
    mica.save(obj, buffer, **options)
    return buffer.getvalue()


def load(data, **options):
    return mica.load(io.BytesIO(data), **options)


EXPECTED = (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, UnicodeDecodeError)


def check_equal(loaded):
    assert loaded["x"].tolist() == sample()["x"].tolist() and loaded["view"].tolist() == sample()["view"].tolist()
    assert loaded["n"] == 3 and loaded["s"] == "text" and loaded["l"] == [1, 2.5, None]


@pytest.mark.parametrize("zipped", [True, False])
def test_truncation(zipped, tmp_path):
    whole = saved(sample(), _use_new_zipfile_serialization=zipped)
    path = tmp_path / "cut.pt"
    for size in sorted({*range(0, len(whole), 41), *range(len(whole) - 80, len(whole))}):
        path.write_bytes(whole[:size])
        with pytest.raises(EXPECTED) as error:
            mica.load(path)
        if size > 3 and zipped:
            assert "cut.pt" in str(error.value)


def test_every_flipped_bit_of_an_archive_is_noticed_or_harmless():
    whole = saved(sample())
    rng = random.Random(0)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        try:
            loaded = load(bytes(damaged))
        except EXPECTED:
            continue
        check_equal(loaded)


def test_flipped_bits_of_the_old_format_never_crash():
    whole = saved(sample(), _use_new_zipfile_serialization=False)
    rng = random.Random(1)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        with contextlib.suppress(EXPECTED):
            load(bytes(damaged))


def test_random_damage():
    whole = saved(sample())
    rng = random.Random(2)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            begin = rng.randrange(len(damaged))
            damaged[begin : begin + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
        try:
            loaded = load(bytes(damaged))
        except EXPECTED:
            continue
        check_equal(loaded)


def test_damage_names_file_and_record(tmp_path):
    path = tmp_path / "model.pt"
    mica.save({"w": mica.arange(100.0)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(b"data/0") + 150] ^= 1
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=r"data/0.*checksum.*model\.pt"):
        mica.load(path)


def test_directory_that_lies():
    whole = bytearray(saved(sample()))
    entry = whole.index(b"PK\x01\x02")
    for offset, form in [(20, "<I"), (24, "<I"), (28, "<H"), (30, "<H"), (42, "<I")]:
        for value in (0, 1, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF):
            damaged = bytearray(whole)
            struct.pack_into(form, damaged, entry + offset, value & (0xFFFF if form == "<H" else 0xFFFFFFFF))
            with contextlib.suppress(EXPECTED):
                check_equal(load(bytes(damaged)))


def test_compressed_archives_are_read_and_bombs_are_not():
    whole = io.BytesIO(saved(sample()))
    packed = io.BytesIO()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    check_equal(load(packed.getvalue()))
    data = bytearray(packed.getvalue())
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, 0xFFFFFFF0)  # a record that says it is 4 GB
    with pytest.raises(RuntimeError, match="data.pkl"):
        load(bytes(data))


def test_a_compressed_record_that_says_it_is_empty():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("archive/data.pkl", bytes(10**6))
    data = bytearray(packed.getvalue())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 0)
    with pytest.raises(RuntimeError, match=r"data\.pkl: it does not match its size"):
        load(bytes(data))


@pytest.mark.no_sanitizer("it measures memory")
def test_a_compressed_pickle_is_bounded_before_it_grows(tmp_path):
    """A file of 600 KB must not take hundreds of megabytes before it is refused."""
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("archive/data.pkl", b"\x80\x02" + b"N0" * (150 << 20) + b"N.")
        target.writestr("archive/version", "3")
    program = f"""
import resource
import mica
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for load in (mica.load, lambda path: mica.load(path, weights_only=False), mica.serialization.get_unsafe_globals_in_checkpoint):
    try:
        load({str(tmp_path / "bomb.pt")!r})
    except RuntimeError as error:
        assert "data.pkl" in str(error) and "would grow to 314572804" in str(error), error
    else:
        raise AssertionError("it was read")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50


def test_a_compressed_storage_may_have_what_is_asked_of_it():
    whole, packed = io.BytesIO(saved({"zeros": mica.zeros(1 << 20)})), io.BytesIO()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    assert mica.equal(load(packed.getvalue())["zeros"], mica.zeros(1 << 20))
    longer = io.BytesIO()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(longer, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name) * (50 if name.endswith("data/0") else 1))
    with pytest.raises(RuntimeError, match=r"data/0: it is compressed, and its \d+ bytes would grow to 209715200"):
        load(longer.getvalue())
