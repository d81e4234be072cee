"""torch.utils.serialization.config, skip_data, and archives by hand."""

import gc
import io
import sys

import mica as torch
import pytest
from mica import serialization
from mica._subclasses.fake_tensor import FakeTensorMode
from mica.utils.serialization import config


def test_storages_begin_where_they_are_asked_to(tmp_path):
    state = torch.nn.Linear(10, 10).state_dict()
    path = tmp_path / "x.pt"
    torch.save(state, path)
    assert torch.load(path, map_location="meta")["weight"].untyped_storage()._checkpoint_offset % 64 == 0
    with config.patch("save.storage_alignment", 4096):
        torch.save(state, path)
    places = [x.untyped_storage()._checkpoint_offset for x in torch.load(path, map_location="meta").values()]
    assert all(place % 4096 == 0 for place in places) and config.save.storage_alignment == 64
    assert torch.equal(torch.load(path)["weight"], state["weight"])
    with config.patch("load.mmap", True):
        assert torch.equal(torch.load(path)["bias"], state["bias"])
    with config.patch("save.storage_alignment", 100), pytest.raises(ValueError, match="power of two"):
        torch.save(state, path)
    with pytest.raises(AttributeError, match="does not exist"), config.patch("save.other", 1):
        pass


def test_nothing_is_kept_after_a_save():
    t = torch.rand(10, 10)
    storage = t.untyped_storage()
    gc.collect()
    gc.disable()
    try:
        before = sys.getrefcount(storage)
        torch.save({"t": t}, io.BytesIO())
        assert sys.getrefcount(storage) == before
    finally:
        gc.enable()


def test_tensors_without_data():
    nested = torch.nested.nested_tensor([torch.randn(2), torch.randn(3)])
    with serialization.skip_data():
        with pytest.raises(RuntimeError, match="Cannot serialize nested tensor under skip_data context manager"):
            torch.save(nested, io.BytesIO())
        with pytest.warns(UserWarning, match="meta device under skip_data context manager is a no-op"):
            torch.save(torch.randn(2, 3, device="meta"), io.BytesIO())
    with FakeTensorMode():
        t = torch.randn(2, 3)
        fakes = {"t": t, "view": t.view(-1), "row": t[1]}
    file = io.BytesIO()
    with serialization.skip_data(materialize_fake_tensors=True):
        torch.save(fakes, file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded["t"].shape == (2, 3) and loaded["t"].device.type == "cpu"
    assert loaded["view"].untyped_storage() is loaded["t"].untyped_storage() and loaded["row"].storage_offset() == 3


def test_archives_by_hand(tmp_path):
    path = tmp_path / "x.pt"
    with serialization._open_zipfile_writer(path) as archive:
        archive.write_record("greeting", b"hello", 5)
    with serialization._open_zipfile_reader(path) as archive:
        assert archive.get_record("greeting") == b"hello" and archive.has_record("greeting")
    with serialization._open_file_like(path, "rb") as file:
        assert file.read(2) == b"PK"
    assert file.closed


def test_quantized_tensors_share_storages_again():
    whole = torch.quantize_per_tensor(torch.rand(15, 2), 0.2, 10, torch.quint8)
    channels = torch.quantize_per_channel(torch.rand(3, 2), torch.ones(3) * 0.1, torch.zeros(3), 0, torch.qint8)
    file = io.BytesIO()
    torch.save((whole, whole[:, 1], channels), file)
    file.seek(0)
    loaded, part, other = torch.load(file)
    assert loaded.untyped_storage() is part.untyped_storage() and part.storage_offset() == 1
    assert torch.equal(part.int_repr(), whole.int_repr()[:, 1]) and torch.equal(loaded.dequantize(), whole.dequantize())
    assert torch.equal(other.dequantize(), channels.dequantize()) and other.q_per_channel_axis() == 0
