"""The Python object of a storage lives as long as tensors hold the storage, if it would be missed. What torch 2.13 says."""

import gc
import io
import weakref

import mica as torch
import pytest


class Tracked:
    """Says in a list when it goes."""

    def __init__(self):
        self.gone = []

    def make(self):
        class Thing:
            pass

        thing = Thing()
        weakref.finalize(thing, self.gone.append, True)
        return thing


def test_attributes_stay_while_a_tensor_holds_the_storage():
    tracked = Tracked()
    a = torch.randn(10)
    a.untyped_storage().thing = tracked.make()
    gc.collect()
    assert not tracked.gone and hasattr(a.untyped_storage(), "thing")
    storage = a.untyped_storage()
    del a
    assert not tracked.gone
    del storage
    assert tracked.gone


def test_a_weak_reference_holds_as_long():
    a = torch.randn(3)
    seen = weakref.ref(a.untyped_storage())
    assert seen() is a.untyped_storage()
    back = seen()
    back._fix_weakref()
    del a
    assert seen() is back and len(back) == 12
    del back
    assert seen() is None


def test_brought_back_by_a_weak_reference_alone():
    a = torch.ones(3)
    seen = weakref.ref(a.untyped_storage())
    back = seen()
    del a
    assert len(back) == 12 and torch.tensor([], dtype=torch.float32).set_(back).tolist() == [1.0, 1.0, 1.0]
    del back
    assert seen() is None


def test_subclasses_are_finalised_once_and_last():
    ended = []

    class Mine(torch.UntypedStorage):
        __slots__ = ["slot"]

        def __del__(self):
            ended.append(self.nbytes())

    storage = Mine(10)
    tracked = Tracked()
    storage.slot = tracked.make()
    a = torch.empty(0, dtype=torch.uint8).set_(storage)
    del storage
    gc.collect()
    assert not ended and not tracked.gone
    assert type(a.untyped_storage()) is Mine and hasattr(a.untyped_storage(), "slot")
    del a
    assert ended == [10] and tracked.gone


def test_cycles_are_collected():
    tracked = Tracked()
    x, y = torch.UntypedStorage(2), torch.UntypedStorage(2)
    x.other, y.other, y.thing = y, x, tracked.make()
    del x, y
    gc.collect()
    assert tracked.gone


def test_the_base_class():
    with pytest.raises(RuntimeError, match="Cannot directly construct StorageBase"):
        torch._C.StorageBase()

    class Mine(torch._C.StorageBase):
        pass

    assert Mine().nbytes() == 0 and Mine(torch.UntypedStorage(2)).nbytes() == 2
    assert isinstance(torch.UntypedStorage(1), torch._C.StorageBase)


def test_typed_storages_refuse_what_torch_refuses():
    with pytest.raises(RuntimeError, match="Only child classes of _LegacyStorage can be instantiated"):
        torch.storage._LegacyStorage()
    for wrong, error, text in [
        ({"device": "cpu"}, RuntimeError, "'device' cannot be specified"),
        ({"dtype": torch.float}, RuntimeError, "'dtype' cannot be specified"),
        ({"other": 1}, TypeError, "got an unexpected keyword"),
    ]:
        with pytest.raises(error, match=text):
            torch.FloatStorage(**wrong)
    for args, error, text in [
        ((0, 0), RuntimeError, "Too many positional arguments"),
        (("string",), TypeError, "invalid data type"),
        ((torch.tensor([]),), TypeError, "Argument type not recognized"),
    ]:
        with pytest.raises(error, match=text):
            torch.FloatStorage(*args)
    bytes_ = torch.UntypedStorage(8)
    with pytest.raises(TypeError, match="Argument 'dtype' must be torch.dtype"):
        torch.TypedStorage(wrap_storage=bytes_, dtype=0)
    with pytest.raises(RuntimeError, match="Argument 'device' should not be specified"):
        torch.TypedStorage(wrap_storage=bytes_, dtype=torch.float, device="cpu")
    with pytest.raises(RuntimeError, match="cannot set item"):
        torch.FloatStorage(2).fill_(torch.FloatStorage(2))


def test_old_names_of_typed_storages():
    storage = torch.FloatStorage([1.0, 2.0])
    assert torch.FloatStorage._dtype == storage._dtype == torch.float32
    assert (storage._size(), storage._nbytes(), storage._element_size()) == (2, 8, 4)
    assert storage._pickle_storage_type() == "FloatStorage" and storage._data_ptr() == storage.data_ptr()
    storage._setitem(slice(0, 2), 3)
    assert storage.tolist() == [3.0, 3.0]
    assert storage.untyped().float().tolist() == [0.0, 0.0, 64.0, 64.0] * 2
    file = io.BytesIO()
    storage._write_file(file, False, True, 4)
    assert file.getvalue() == (2).to_bytes(8, "little") + bytes([0, 0, 64, 64] * 2)
    with pytest.raises(NotImplementedError, match="Cannot copy out"):
        torch.TypedStorage([1, 2], device="meta", dtype=torch.int32)._write_file(file, False, True, 4)


def test_set_grows_a_storage_only_for_other_sizes():
    t = torch.randn(1)
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 4"):
        t.set_(t.untyped_storage(), 100, t.size())
    t.set_(t.untyped_storage(), 100, (2, 3))
    assert t.storage_offset() == 100 and t.untyped_storage().nbytes() == 424


def test_negated_views():
    x = torch.tensor([1.0, -2.0])
    negated = x._neg_view()
    assert negated.is_neg() and negated.tolist() == [-1.0, 2.0] and negated.data_ptr() == x.data_ptr()
    negated.copy_(torch.tensor([5.0, 6.0]))
    assert x.tolist() == [-5.0, -6.0]
    assert torch._neg_view(negated).tolist() == [-5.0, -6.0]
    file = io.BytesIO()
    torch.save(negated, file)
    file.seek(0)
    assert torch.load(file).tolist() == [5.0, 6.0]


def test_storages_on_another_device_and_in_pinned_memory():
    # What torch 2.13 says.
    untyped = torch.ones(3).untyped_storage()
    typed = torch.TypedStorage([1.0, 2.0], dtype=torch.float32)
    moved = typed.to(device="meta")
    assert moved.device.type == "meta" and moved.dtype is torch.float32 and moved.size() == 2
    assert typed.to(device="cpu").tolist() == [1.0, 2.0]
    if torch.accelerator.is_available():
        assert untyped.pin_memory().is_pinned() and typed.pin_memory().tolist() == [1.0, 2.0]
        return
    for storage in (untyped, typed):
        with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
            storage.pin_memory()


def test_storages_of_8_bit_floats():
    storage = torch.ones(1).untyped_storage()  # the bytes 0, 0, 128, 63
    for name, last in {"e4m3fn": 64.0, "e5m2": 64.0, "e4m3fnuz": 64.0, "e5m2fnuz": 64.0}.items():
        made = getattr(storage, f"float8_{name}")()
        assert made.dtype is getattr(torch, f"float8_{name}") and made.tolist() == [0.0, 0.0, 128.0, last]
        typed = torch.TypedStorage([1.0, 2.0], dtype=torch.float32)
        assert getattr(typed, f"float8_{name}")().tolist() == [1.0, 2.0]
