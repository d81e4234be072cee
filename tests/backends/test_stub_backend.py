"""The seam of backends, seen from Python with a backend that the core knows nothing of: tests/backends/stub."""

from pathlib import Path

import mica
import numpy as np
import pytest

LIBRARIES = Path(mica._C.__file__).parents[2] / "tests" / "backends"


@pytest.fixture(scope="module", autouse=True)
def stub():
    assert mica.backends.open(LIBRARIES / "libmica_stub.so") == "stub"


def test_tensors_move_and_print():
    x = mica.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = x.to("stub")
    assert y.device == mica.device("stub:0")
    assert y.cpu().tolist() == y.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y[1, 0].item() == 3.0
    assert float(y.sum()) == 10.0
    assert "device='stub:0'" in repr(y) and "3." in repr(y)
    assert mica.tensor([1, 2], device="stub:1").device == mica.device("stub:1")
    assert mica.ones(2, device="stub").tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="can't convert stub:0 device type tensor to numpy"):
        np.asarray(y)


def test_gradients():
    def run(device):
        a = mica.arange(6.0).view(2, 3).to(device).requires_grad_()
        b = mica.arange(6.0).view(3, 2).to(device).requires_grad_()
        ((a @ b) * 2 + a.sum()).sum().backward()
        return a.grad.tolist(), b.grad.tolist()

    assert run("stub") == run("cpu")


def test_missing_kernel():
    with pytest.raises(NotImplementedError, match="Could not run 'exp' on 'stub:0'"):
        mica.ones(2, device="stub").exp()


def test_devices_apart():
    with pytest.raises(RuntimeError, match="found at least two devices, stub:0 and cpu!"):
        mica.ones(2, device="stub") + mica.ones(2)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        mica.ones(2, device="stub:7")


def test_refused_libraries():
    with pytest.raises(RuntimeError, match="built for another version of Mica"):
        mica.backends.open(LIBRARIES / "libmica_stub_of_another_version.so")
    with pytest.raises(RuntimeError, match="is not a backend"):
        mica.backends.open(LIBRARIES / "libmica_no_backend.so")
    with pytest.raises(RuntimeError, match="cannot open the backend library"):
        mica.backends.open(LIBRARIES / "absent.so")
