"""DLPack: tensors handed between libraries in one process."""

import gc

import mica
import pytest

DTYPES = "float64 float32 float16 bfloat16 complex64 complex128 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool"


@pytest.mark.parametrize("name", DTYPES.split())
@pytest.mark.parametrize("version", [None, (0, 8), (1, 0)])
def test_round_trip(name, version):
    x = mica.arange(6).reshape(2, 3).to(getattr(mica, name)).t()
    y = mica.from_dlpack(x.__dlpack__(max_version=version))
    assert y.dtype == x.dtype and y.stride() == x.stride() and y.data_ptr() == x.data_ptr() and mica.equal(x, y)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (2, 3)])
def test_shapes(shape):
    x = mica.ones(shape)
    assert mica.from_dlpack(x).shape == shape


def test_memory_is_shared_and_kept():
    x = mica.arange(4.0)
    y = mica.from_dlpack(x)
    y[0] = 5
    assert x[0].item() == 5
    del x
    gc.collect()
    assert y.tolist() == [5, 1, 2, 3]


def test_a_capsule_is_consumed_once():
    capsule = mica.to_dlpack(mica.ones(2))
    assert "dltensor" in repr(capsule)
    mica.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="consumed only once"):
        mica.from_dlpack(capsule)
    del capsule
    unused = mica.ones(2).__dlpack__(max_version=(1, 0))
    del unused
    gc.collect()


def test_copy():
    x = mica.ones(2)
    assert mica.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert mica.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert mica.from_dlpack(x, device="cpu").data_ptr() == x.data_ptr()
    assert x.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (lambda: mica.ones(2, requires_grad=True), "require gradient"),
        (lambda: mica.ones(2, dtype=mica.complex64).conj(), "conjugate bit"),
        (lambda: mica.ones(2, dtype=mica.complex64).conj().imag, "negative bit"),
        (lambda: mica.ones(2, device="meta"), "Cannot pack tensors on meta"),
    ],
)
def test_what_cannot_be_exported(tensor, words):
    with pytest.raises(BufferError) as caught:
        tensor().__dlpack__()
    assert words in str(caught.value)


def test_stream_argument():
    assert mica.ones(2).__dlpack__(stream=None) and mica.ones(2).__dlpack__(stream=-1)
    with pytest.raises(TypeError, match="stream must be"):
        mica.ones(2).__dlpack__(stream="a")
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        mica.ones(2).__dlpack__(stream=5)


def test_exporters_of_old_are_asked_without_version():
    class Old:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    x = mica.arange(3)
    assert mica.from_dlpack(Old(x)).data_ptr() == x.data_ptr()
    assert mica.as_tensor(Old(x)).data_ptr() == x.data_ptr()
    assert mica.tensor(Old(x)).data_ptr() != x.data_ptr()


def test_what_is_no_exporter():
    with pytest.raises(RuntimeError, match="invalid capsule"):
        mica.from_dlpack([1])


def test_numpy():
    np = pytest.importorskip("numpy")
    x = mica.arange(6.0).reshape(2, 3)
    array = np.from_dlpack(x)
    array[0, 0] = 5
    assert x[0, 0].item() == 5
    source = np.arange(6.0)[::-1]
    assert mica.from_dlpack(source).tolist() == [5, 4, 3, 2, 1, 0]
    assert mica.from_dlpack(source).data_ptr() == source.ctypes.data


@pytest.mark.torch
@pytest.mark.parametrize("name", DTYPES.split())
def test_torch_in_one_process(name):
    torch = pytest.importorskip("torch")
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name)).t()
    ours = mica.from_dlpack(theirs)
    assert str(ours.dtype) == str(theirs.dtype) and ours.tolist() == theirs.tolist()
    assert ours.stride() == theirs.stride() and ours.data_ptr() == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert torch.equal(back, theirs) and back.data_ptr() == theirs.data_ptr()
    ours.zero_()
    assert not theirs.any()


def test_devices_by_their_names():
    kinds = mica.utils.dlpack.DLDeviceType
    assert mica.ones(1).__dlpack_device__() == (kinds.kDLCPU, 0) and kinds(2) is kinds.kDLCUDA
    with pytest.raises(BufferError, match="Unsupported device_type: 16"):
        mica.ones(1).__dlpack__(max_version=(1, 0), dl_device=(kinds.kDLHexagon, 0))
