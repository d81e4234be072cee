"""Memory of storages that somebody else looks at."""

import mica
import pytest


@pytest.mark.parametrize("size", [4, 5000])  # small storages lie within their header
@pytest.mark.parametrize("export", [lambda x: x.numpy(), lambda x: x[1:].__array__(), mica.utils.dlpack.to_dlpack])
def test_memory_that_was_handed_out_cannot_be_resized(size, export):
    x = mica.arange(float(size))
    seen = export(x)
    before = x.tolist()
    for resize in (lambda: x.resize_(10**6), lambda: x.untyped_storage().resize_(0), lambda: x.storage().resize_(9)):
        with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
            resize()
    assert x.tolist() == before and not x.untyped_storage().resizable()
    x.resize_(2)  # within the storage
    assert x.tolist() == [0, 1]
    del seen


@pytest.mark.parametrize("size", [4, 50000])
def test_an_array_stays_valid_when_its_tensor_moves_to_shared_memory(size):
    x = mica.arange(float(size))
    array = x.numpy()
    x.share_memory_()
    others = [mica.full((size,), 7.0) for _ in range(50)]
    assert x.is_shared() and array.tolist() == x.tolist() == list(range(size))
    address = array.ctypes.data
    del x
    assert array.sum() == sum(range(size)) and array.ctypes.data == address and others


def test_a_mapped_file_moved_to_shared_memory_stays_mapped_for_its_array(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(256)) * 64)
    x = mica.from_file(str(path), size=256 * 64, dtype=mica.uint8)
    array = x.numpy()
    x.share_memory_()
    assert array[255] == 255 and x[255] == 255


def test_a_part_keeps_the_whole_in_place():
    whole = mica.arange(1000, dtype=mica.uint8).untyped_storage()
    part = whole[100:200]
    with pytest.raises(RuntimeError, match="not resizable"):
        whole.resize_(10**6)
    assert part[0] == 100


def test_a_callback_that_asks_for_the_dying_storage():
    import weakref

    def once():
        found = []
        x = mica.ones(3)
        storage = x.untyped_storage()
        storage.note = type("Note", (), {"__del__": lambda self: found.append(watch())})()
        watch = weakref.ref(storage, lambda _: found.append(watch()))
        del storage
        assert watch() is x.untyped_storage() and not found  # as in torch: x holds it
        storage = x.untyped_storage()
        del x
        assert watch() is storage and not found
        del storage
        assert watch() is None and found == [None, None]

    for _ in range(100):
        once()
