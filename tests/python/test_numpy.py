"""NumPy arrays and tensors over one memory."""

import gc
import subprocess
import sys
import weakref

import mica
import pytest

np = pytest.importorskip("numpy")

SHARED = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float16",
    "complex64": "complex64",
    "complex128": "complex128",
    "int64": "int64",
    "int32": "int32",
    "int16": "int16",
    "int8": "int8",
    "uint64": "uint64",
    "uint32": "uint32",
    "uint16": "uint16",
    "uint8": "uint8",
    "bool": "bool",
}


@pytest.mark.parametrize("name", SHARED)
def test_every_shared_dtype_both_ways(name):
    array = np.arange(6).reshape(2, 3).astype(name)
    tensor = mica.from_numpy(array)
    assert tensor.dtype == getattr(mica, name) and tensor.shape == (2, 3) and tensor.data_ptr() == array.ctypes.data
    back = tensor.numpy()
    assert back.dtype == array.dtype and back.ctypes.data == array.ctypes.data and (back == array).all()


def test_writes_are_seen_on_both_sides():
    array = np.array([1.0, 2.0, 3.0])
    tensor = mica.from_numpy(array)
    array[0] = 9
    tensor[1] = 7
    assert tensor.tolist() == [9, 7, 3] and array.tolist() == [9, 7, 3]


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[::-1, ::-2],
        lambda a: a[:, 1],
        lambda a: a[1:1],
        lambda a: a[0, 0:1].reshape(()),
        lambda a: np.broadcast_to(a[:, :1], a.shape),
    ],
)
def test_strides_of_any_sign_are_views(view):
    array = np.arange(12.0).reshape(3, 4)
    viewed = view(array)
    if not viewed.flags.writeable:
        viewed = np.lib.stride_tricks.as_strided(array, viewed.shape, viewed.strides)
    tensor = mica.from_numpy(viewed)
    assert tensor.tolist() == viewed.tolist()
    assert tensor.stride() == tuple(s // 8 for s in viewed.strides)
    if viewed.size:
        assert tensor.data_ptr() == viewed.ctypes.data
        array += 100
        assert tensor.tolist() == viewed.tolist()
    assert tensor.numpy().tolist() == viewed.tolist()


def test_reversed_tensor_to_numpy():
    x = mica.arange(6).reshape(2, 3)[:, ::-1]
    array = x.numpy()
    assert array.tolist() == [[2, 1, 0], [5, 4, 3]] and array.strides == (24, -8)


def test_memory_lives_as_long_as_either_side():
    array = np.arange(1000.0)
    gone = weakref.ref(array)
    tensor = mica.from_numpy(array)
    view = tensor[10:20]
    del array, tensor
    gc.collect()
    assert gone() is not None and view.tolist() == list(map(float, range(10, 20)))
    del view
    gc.collect()
    assert gone() is None
    array = mica.arange(1000).numpy()
    gc.collect()
    assert array.sum() == 499500


def test_an_array_keeps_its_shape_when_the_tensor_is_resized():
    x = mica.arange(6)
    array = x.numpy()
    x.resize_(2, 2)
    assert array.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_read_only_array_warns_once():
    program = (
        "import warnings, numpy as np, mica\n"
        "a = np.arange(3.); a.flags.writeable = False\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    mica.from_numpy(a); mica.from_numpy(a)\n"
        "assert len(seen) == 1 and 'not writable' in str(seen[0].message), seen\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        (lambda: np.arange(3, dtype=">i4"), ValueError, "byte order"),
        (lambda: np.array([None]), TypeError, "can't convert np.ndarray of type numpy.object_"),
        (lambda: np.array(["a"]), TypeError, "numpy.str_"),
        (lambda: np.array([1], dtype="M8[s]"), TypeError, "numpy.datetime64"),
        (lambda: np.zeros(3, dtype=[("a", "f4")]), TypeError, "numpy.void"),
        (lambda: np.ndarray((2,), "f4", np.zeros(20, "u1"), 0, (6,)), ValueError, "strides not a multiple"),
        (lambda: [1, 2], TypeError, "expected np.ndarray (got list)"),
    ],
)
def test_what_from_numpy_refuses(array, error, words):
    with pytest.raises(error) as caught:
        mica.from_numpy(array())
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("tensor", "error", "words"),
    [
        (lambda: mica.ones(2, dtype=mica.bfloat16), TypeError, "Got unsupported ScalarType BFloat16"),
        (lambda: mica.ones(2, requires_grad=True), RuntimeError, "Use tensor.detach().numpy()"),
        (lambda: mica.ones(2, dtype=mica.complex64).conj(), RuntimeError, "conjugate bit"),
        (lambda: mica.ones(2, dtype=mica.complex64).conj().imag, RuntimeError, "negative bit"),
        (lambda: mica.ones(2, device="meta"), TypeError, "can't convert meta device type tensor"),
    ],
)
def test_what_numpy_refuses(tensor, error, words):
    with pytest.raises(error) as caught:
        tensor().numpy()
    assert words in str(caught.value)


def test_force():
    assert mica.ones(2, requires_grad=True).numpy(force=True).tolist() == [1, 1]
    assert mica.tensor([1 + 2j]).conj().numpy(force=True).tolist() == [1 - 2j]
    with mica.no_grad():
        assert mica.ones(2, requires_grad=True).numpy().tolist() == [1, 1]


def test_array_protocol():
    x = mica.arange(6).reshape(2, 3)
    assert np.asarray(x).ctypes.data == x.data_ptr()
    assert np.asarray(x, dtype="float32").tolist() == x.tolist()
    assert np.array(x).ctypes.data != x.data_ptr()
    with pytest.raises(ValueError, match="avoid copy"):
        x.__array__(dtype=np.float32, copy=False)
    assert mica.Tensor.__array_priority__ == 1000
    assert isinstance(np.sin(mica.zeros(3)), mica.Tensor)
    assert not hasattr(x, "__cuda_array_interface__") and "__cuda_array_interface__" not in dir(x)


def test_arithmetic_with_arrays():
    assert (mica.ones(3) + np.ones(3)).tolist() == [2, 2, 2]
    assert (mica.ones(3) * np.float64(2)).dtype == mica.float32


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_equality_with_arrays(dtype):
    array = np.array([[0, 1], [1, 0]]).astype(dtype)
    x = mica.ones(2, 2, dtype=getattr(mica, dtype))
    equal = [[False, True], [True, False]]
    assert (x == array).tolist() == (array == x).tolist() == equal
    assert (x != array).tolist() == [[not e for e in row] for row in equal]


def test_numpy_is_not_imported_with_mica():
    program = "import sys, mica; mica.ones(2).tolist(); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
