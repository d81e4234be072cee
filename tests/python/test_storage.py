"""Storages: the flat memory under tensors."""

import os
import pickle
import subprocess
import sys

import mica
import pytest


def test_one_flat_array_shared_by_views():
    p = mica.tensor([[4.0, 1.0], [5.0, 3.0], [2.0, 1.0]])
    s = p.storage()
    assert len(s) == s.size() == 6 and s.nbytes() == 24 and s.element_size() == 4
    assert list(s) == s.tolist() == [4, 1, 5, 3, 2, 1] and s[-1] == 1
    assert s.dtype == mica.float32 and s.device == mica.device("cpu") and s.type() == "torch.FloatStorage"
    s[0] = 2.0
    assert p[0, 0].item() == 2
    s[1:3] = 9
    assert p.tolist() == [[2, 9], [9, 3], [2, 1]]
    assert p.storage().data_ptr() == p.t().storage().data_ptr() == p[1:].storage().data_ptr() == p.data_ptr()


def test_one_object_per_storage():
    x = mica.ones(3)
    u = x.untyped_storage()
    assert u is x[1:].untyped_storage() and u is x.detach().untyped_storage()
    assert u is not x.clone().untyped_storage() and x.storage() == x[1:].storage()


def test_bytes():
    u = mica.ones(2).untyped_storage()
    assert u.tolist() == [0, 0, 128, 63, 0, 0, 128, 63] and bytes(u) == bytes(u.tolist()) and u[3] == 63
    part = u[4:8]
    part[0] = 255
    assert u[4] == 255 and len(part) == 4 and part.data_ptr() == u.data_ptr() + 4
    u[0:2] = 7
    assert u.tolist()[:2] == [7, 7]
    assert repr(u[0:2]) == " 7\n 7\n[torch.storage.UntypedStorage(device=cpu) of size 2]"


def test_a_part_keeps_the_whole_alive():
    part = mica.arange(100).untyped_storage()[8:16]
    assert part.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("index", [6, -7, 100])
def test_bounds(index):
    s = mica.zeros(6).storage()
    with pytest.raises(IndexError, match=f"index {index} out of range for storage of size 6"):
        s[index]
    with pytest.raises(IndexError):
        s[index] = 1


def test_construction():
    assert mica.UntypedStorage(3).nbytes() == 3 and mica.UntypedStorage([1, 2]).tolist() == [1, 2]
    assert mica.UntypedStorage().nbytes() == 0 and mica.UntypedStorage(4, device="meta").device.type == "meta"
    assert mica.FloatStorage([1, 2]).tolist() == [1, 2] and mica.FloatStorage(3).nbytes() == 12
    assert mica.TypedStorage([1, 2], dtype=mica.float64).tolist() == [1, 2]
    assert isinstance(mica.ones(2).storage(), mica.FloatStorage)
    assert not isinstance(mica.ones(2).storage(), mica.LongStorage)
    assert mica.is_storage(mica.FloatStorage(1)) and not mica.is_storage(mica.ones(1))
    with pytest.raises(RuntimeError, match="negative"):
        mica.UntypedStorage(-1)
    with pytest.raises(TypeError):
        mica.UntypedStorage(1.5)


def test_changes():
    s = mica.arange(3.0).storage()
    t = s.clone().fill_(5)
    assert s.tolist() == [0, 1, 2] and t.tolist() == [5, 5, 5] and s.copy_(t).tolist() == [5, 5, 5]
    assert s.double().dtype == mica.float64 and s.int().tolist() == [5, 5, 5]


def test_resize_keeps_what_fits_and_tensors_follow():
    x = mica.arange(3.0)
    x.untyped_storage().resize_(4000)
    assert x.tolist() == [0, 1, 2] and x.untyped_storage().nbytes() == 4000
    x.storage().resize_(2)
    assert x[:2].tolist() == [0, 1]


def test_set():
    storage = mica.arange(6.0).storage()
    x = mica.empty(0).set_(storage, 1, (2, 2), (2, 1))
    assert x.tolist() == [[1, 2], [3, 4]] and x.storage_offset() == 1
    assert mica.empty(0).set_(storage).tolist() == [0, 1, 2, 3, 4, 5]
    assert mica.empty(0).set_(storage.untyped(), 3, (2,)).tolist() == [3, 4]
    assert mica.empty(0).set_(x).tolist() == x.tolist() and mica.ones(3).set_().shape == (0,)
    x[0, 0] = 9
    assert storage[1] == 9


def test_set_grows_a_storage_but_not_foreign_memory():
    storage = mica.arange(4.0).untyped_storage()
    assert mica.empty(0).set_(storage, 3, (2,), (1,)).shape == (2,) and storage.nbytes() == 20
    foreign = mica.frombuffer(bytearray(8), dtype=mica.float32).untyped_storage()
    x = mica.ones(2)
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 8"):
        x.set_(foreign, 0, (3,), (1,))
    assert x.tolist() == [1, 1]


def test_set_refuses():
    with pytest.raises(RuntimeError, match="Expected a Storage of type"):
        mica.empty(0).set_(mica.arange(4).storage())
    with pytest.raises(RuntimeError, match="different device"):
        mica.empty(0).set_(mica.empty(2, device="meta").untyped_storage(), 0, (2,))
    with pytest.raises(RuntimeError, match="offset"):
        mica.empty(0).set_(mica.arange(4.0).storage(), -1, (2,))
    with pytest.raises(RuntimeError):
        mica.empty(0).set_(mica.arange(4.0).storage(), 0, (2**62, 2**62))
    with pytest.raises(RuntimeError):
        mica.empty(0).set_(mica.arange(4.0).storage(), 0, (2,), (1, 1))


def test_shared_memory_is_seen_by_a_forked_process():
    x = mica.zeros(4)
    view = x[1:]
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared() and view.is_shared()
    child = os.fork()
    if child == 0:
        view[0] = 42
        os._exit(0)
    os.waitpid(child, 0)
    assert x.tolist() == [0, 42, 0, 0]


def test_shared_memory_by_descriptor():
    x = mica.arange(4).share_memory_()
    fd, size = x.untyped_storage()._share_fd_cpu_()
    again = mica.UntypedStorage._new_shared_fd_cpu(fd, size)
    mica.empty(0, dtype=mica.int64).set_(again)[2] = 7
    assert x.tolist() == [0, 1, 7, 3]
    with pytest.raises(RuntimeError):
        mica.UntypedStorage._new_shared_fd_cpu(fd, 1 << 30)


def test_empty_storages_can_be_shared():
    assert mica.empty(0).share_memory_().is_shared()


def test_pickle():
    x = mica.arange(4.0)
    s = pickle.loads(pickle.dumps(x.storage()))
    assert s.tolist() == [0, 1, 2, 3] and s.dtype == mica.float32
    u = pickle.loads(pickle.dumps(x.untyped_storage()))
    assert bytes(u) == bytes(x.untyped_storage()) and u.data_ptr() != x.data_ptr()


def test_files(tmp_path):
    path = tmp_path / "numbers"
    x = mica.from_file(path, shared=True, size=4, dtype=mica.int32)
    x.copy_(mica.arange(4))
    assert path.read_bytes() == bytes(x.untyped_storage()) and path.stat().st_size == 16
    private = mica.from_file(str(path), shared=False, size=2, dtype=mica.int32)
    private[0] = 99
    assert x[0].item() == 0 and private.tolist() == [99, 1]
    mapped = mica.UntypedStorage.from_file(str(path), True, 8)
    assert mapped.filename == x.untyped_storage().filename == x[1:].untyped_storage().filename == str(path)
    assert (
        mica.ones(2).untyped_storage().filename is private.untyped_storage().filename is mapped.clone().filename is None
    )
    with pytest.raises(RuntimeError, match="smaller than the required"):
        mica.from_file(path, shared=False, size=100, dtype=mica.int32)
    with pytest.raises(RuntimeError, match="unable to open file"):
        mica.from_file(tmp_path / "none", size=1)


def test_pinning_needs_a_gpu():
    assert not mica.ones(2).is_pinned()
    if not mica.cuda.is_available():
        with pytest.raises(RuntimeError, match="accelerator"):
            mica.ones(2).pin_memory()


def test_storages_without_numpy():
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "import mica, pickle, copy\n"
        "x = mica.arange(3.)\n"
        "assert pickle.loads(pickle.dumps(x)).tolist() == copy.deepcopy(x).tolist() == [0, 1, 2]\n"
        "assert list(x.storage()) == [0, 1, 2]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_getsizeof_counts_the_elements():
    import sys

    x = mica.zeros(1000)
    for storage in (x.untyped_storage(), x.storage()):
        assert 4000 <= sys.getsizeof(storage) < 4200


def test_storage_is_the_class_of_the_default_dtype():
    points = mica.ones(2, 3)
    assert mica.Storage is mica.FloatStorage
    assert isinstance(points.storage(), mica.Storage) and issubclass(mica.Storage, mica.TypedStorage)
    assert not isinstance(points.double().storage(), mica.Storage)
    mica.set_default_dtype(mica.float64)
    try:
        assert mica.Storage is mica.DoubleStorage
    finally:
        mica.set_default_dtype(mica.float32)
    assert "Storage" in dir(mica)


def test_storages_can_be_subclassed():
    class Own(mica.Storage):
        pass

    assert isinstance(mica.ones(2).storage(), Own) and Own.dtype is mica.float32
    assert type(Own(3)) is mica.TypedStorage and len(Own(3)) == 3


def test_typed_storages_of_one_storage_have_one_id():
    points = mica.ones(2, 3)
    transposed = points.t()
    for _ in range(3):
        same = id(points.storage()) == id(transposed.storage())  # an assert would keep the first alive
        assert same


def test_storage_classes_read_files(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(8))
    assert len(mica.FloatStorage.from_file(str(path), False, 2)) == 2


def test_a_tensor_of_a_storage_shares_its_memory():
    """What torch 2.13 does: bytes are read as the dtype, a typed storage must have it."""
    x = mica.arange(4.0)
    storage = x.storage()
    for made in (
        mica.tensor(storage),
        mica.as_tensor(storage),
        mica.tensor(x.untyped_storage(), dtype=mica.float32),
        mica.Tensor(x.untyped_storage()),
        mica.Tensor(storage),
        mica.FloatTensor(storage),
        x.new(storage),
    ):
        assert made.tolist() == [0, 1, 2, 3] and made.data_ptr() == x.data_ptr()
    assert mica.tensor(x.untyped_storage(), dtype=mica.int32).tolist() == [0, 1065353216, 1073741824, 1077936128]
    assert mica.tensor(x.untyped_storage()).tolist() == [4575657221408423936, 4629700418010611712]
    with pytest.raises(RuntimeError, match="Expected a Storage of type Int or an UntypedStorage, but got Float"):
        mica.tensor(storage, dtype=mica.int32)
    with pytest.raises(RuntimeError, match="Expected a Storage of type Float or an UntypedStorage, but got type Long"):
        mica.FloatTensor(mica.arange(2).storage())


def test_storages_without_data_say_so():
    typed = mica.arange(4.0, device="meta").storage()
    for read in (
        lambda: typed[0],
        lambda: typed.tolist(),
        lambda: typed.untyped()[0],
        lambda: typed.untyped().tolist(),
        lambda: mica.UntypedStorage(device="meta")[0],
    ):
        with pytest.raises(NotImplementedError, match="Not available for 'meta' device type"):
            read()
    with pytest.raises(RuntimeError, match="only available on CPU"):
        typed.share_memory_()
    scalar = mica.tensor(1.0, device="meta")
    assert format(scalar) == repr(scalar)


def test_byteswap_turns_the_bytes_of_each_number_around():
    storage = mica.tensor([1, 256], dtype=mica.int32).untyped_storage()
    storage.byteswap(mica.int32)
    assert storage.tolist() == [0, 0, 0, 1, 0, 0, 1, 0]
    storage.byteswap(mica.uint8)
    storage.byteswap(mica.complex64)
    assert mica.tensor(storage, dtype=mica.int32).tolist() == [1, 256]
    with pytest.raises(RuntimeError, match="the length of data is not a multiple of 2"):
        mica.UntypedStorage(3).byteswap(mica.int16)
    with pytest.raises(RuntimeError, match="expected torch.dtype"):
        storage.byteswap(4)


def test_names_of_storage_classes():
    assert mica.storage._dtype_to_storage_type_map()[mica.bfloat16] == "BFloat16Storage"
    assert mica.storage._storage_type_to_dtype_map()["HalfStorage"] is mica.float16


def test_old_overloads_warn_every_time_if_asked_to():
    one = mica.ones(2)
    mica.set_warn_always(True)
    try:
        for _ in range(2):
            with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
                mica.addcmul(one, 2.0, one, one)
    finally:
        mica.set_warn_always(False)


def test_storages_from_buffers():
    """As torch 2.13: a copy, in either byte order."""
    data = bytearray([1, 2, 3, 4, 5, 6, 7, 8])
    made = mica.ByteStorage.from_buffer(data)
    data[0] = 99
    assert made.tolist() == [1, 2, 3, 4, 5, 6, 7, 8] and isinstance(made, mica.ByteStorage)
    data[0] = 1
    assert mica.ShortStorage.from_buffer(data, "big").tolist() == [258, 772, 1286, 1800]
    assert mica.ShortStorage.from_buffer(data, "little", 1, 2).tolist() == [1027]
    assert mica.FloatStorage.from_buffer(bytes([0x40, 0x10, 0, 0]), "big").tolist() == [2.25]
    assert mica.BoolStorage.from_buffer(b"\x00\x01\x10", "big").tolist() == [False, True, True]
    assert mica.UntypedStorage.from_buffer(data, "big", dtype=mica.int16).tolist() == [2, 1, 4, 3, 6, 5, 8, 7]
    assert mica.ByteStorage.from_buffer(b"").size() == 0
    refusals = [
        (lambda: mica.FloatStorage.from_buffer(data), RuntimeError, "missing required argument 'byte_order'"),
        (lambda: mica.FloatStorage.from_buffer(data, "x"), ValueError, "invalid byte_order 'x'"),
        (
            lambda: mica.FloatStorage.from_buffer(data, "native", offset=1),
            ValueError,
            "must be a multiple of element size",
        ),
        (lambda: mica.ByteStorage.from_buffer(data, count=9), ValueError, "buffer has only 8 elements after offset 0"),
        (lambda: mica.ByteStorage.from_buffer(data, offset=9), ValueError, "offset must be non-negative"),
        (lambda: mica.ByteStorage.from_buffer(3), TypeError, "a bytes-like object is required"),
        (lambda: mica.UntypedStorage.from_buffer(data), RuntimeError, "argument 'dtype' cannot be None"),
        (lambda: mica.cuda.FloatStorage.from_buffer(), RuntimeError, "Not available for CUDA storage"),
    ]
    for call, kind, words in refusals:
        with pytest.raises(kind, match=words):
            call()


def test_tensors_beyond_a_storage_that_was_made_smaller_are_refused():
    x = mica.arange(8.0)
    half, view = x[:4], x.view(2, 4)
    x.untyped_storage().resize_(16)
    assert half.tolist() == [0.0, 1.0, 2.0, 3.0]
    calls = [
        lambda: x.clone(), lambda: x + 1, lambda: x.sum(), lambda: x.add_(1), lambda: view @ view.t(),
        lambda: x.tolist(), lambda: mica.cat([x, x]), lambda: x.sort(), lambda: repr(x),
        lambda: x[mica.tensor([1])], lambda: x.softmax(0), lambda: mica.zeros(8).copy_(x),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="32 bytes is read whose storage has 16"):
            call()
    x.untyped_storage().resize_(0)
    assert x.data_ptr() == 0 and x.shape == (8,)
    x.untyped_storage().resize_(32)
    x.fill_(2)
    assert view.sum() == 16
