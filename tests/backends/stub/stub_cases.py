"""What test_stub_backend.py runs in a process of its own: the opened backend is the accelerator there."""

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


def test_the_backend_is_the_accelerator():
    assert mica.accelerator.is_available() and mica.accelerator.device_count() == 2
    assert mica.accelerator.current_accelerator() == mica.device("stub")
    assert mica.device(1) == mica.device("stub:1")
    with mica.accelerator.device_index(1):
        assert mica.accelerator.current_device_index() == 1
        assert mica.ones(2, device="stub").device.index == 1
    assert mica.accelerator.current_device_index() == 0
    mica.accelerator.synchronize()
    before = mica.accelerator.memory_allocated()
    held = mica.ones(1000, device="stub")
    assert mica.accelerator.memory_allocated(held.device) == before + 4000
    assert mica.accelerator.max_memory_allocated() >= before + 4000
    assert mica.accelerator.current_stream() == mica.Stream("stub:0")
    with pytest.raises(ValueError, match="cuda doesn't match the current accelerator stub"):
        mica.accelerator.synchronize("cuda")
    with pytest.raises(NotImplementedError, match="the backend 'stub' does not implement 'empty_cache'"):
        mica.accelerator.empty_cache()


def test_dlpack_asks_the_backend():
    x = mica.arange(6.0).to("stub:1")
    assert x.__dlpack_device__() == (12, 1)
    y = mica.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr() and y.tolist() == x.tolist()
    with pytest.raises(ValueError, match="Unknown device type meta for Dlpack"):
        mica.empty(2, device="meta").__dlpack_device__()


def test_dlpack_lets_the_consumers_stream_wait():
    x = mica.ones(2, device="stub")
    assert mica._C._stream_done("stub", 77)
    x.__dlpack__(stream=-1)
    x.__dlpack__(stream=1)  # the default stream, which is the current one
    assert mica._C._stream_done("stub", 77) and mica._C._stream_done("stub", 0)
    x.__dlpack__(stream=77)
    assert not mica._C._stream_done("stub", 77)
    with pytest.raises(ValueError, match="unsupported stream: 0"):
        x.__dlpack__(stream=0)


def test_checkpoints_remember_the_device(tmp_path):
    mica.save({"x": mica.ones(3, device="stub:1")}, tmp_path / "x.pt")
    assert mica.load(tmp_path / "x.pt")["x"].device == mica.device("stub:1")
    assert mica.load(tmp_path / "x.pt", map_location="cpu")["x"].tolist() == [1.0, 1.0, 1.0]


def test_optimizers_take_its_tensors():
    p = mica.nn.Parameter(mica.ones(2, device="stub"))
    p.grad = mica.ones(2, device="stub")
    mica.optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [0.5, 0.5]
    c = mica.nn.Parameter(mica.ones(2))
    c.grad = mica.ones(2)
    with pytest.raises(AssertionError, match="If capturable=True, params and state_steps must be on supported devices"):
        mica.optim.Adamax([c], capturable=True).step()


def test_data_parallel_moves_results_to_output_device():
    linear = mica.nn.Linear(2, 2)
    x = mica.ones(1, 2)
    expected = linear(x).tolist()
    on_one = mica.nn.DataParallel(linear, device_ids=[1])
    assert on_one.output_device == 1 and on_one(x).device == mica.device("stub:1")
    assert mica.nn.DataParallel(linear, device_ids=[1], output_device=0)(x).device == mica.device("stub:0")
    back = mica.nn.DataParallel(linear, device_ids=[1], output_device="cpu")(x)
    assert back.device == mica.device("cpu") and back.tolist() == expected
    called = mica.nn.parallel.data_parallel(linear, x, device_ids=[1], output_device=-1)
    assert called.device == mica.device("cpu") and called.tolist() == expected
    with pytest.raises(RuntimeError, match="A module can be on one GPU so far"):
        mica.nn.DataParallel(linear)


def test_memory_and_graphs_of_the_accelerator():
    held = mica.zeros(1000, device="stub")
    stats = mica.accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == mica.accelerator.memory_allocated() >= 4000
    assert list(stats) == sorted(stats)
    assert mica.float32 in mica.accelerator.get_device_capability()["supported_dtypes"]
    assert len(mica.accelerator.get_memory_info()) == 2
    mica.accelerator.empty_host_cache()
    with pytest.raises(RuntimeError, match="records no graphs"):
        mica.accelerator.Graph()
    with pytest.raises(RuntimeError, match="counts nothing over time"):
        mica.accelerator.reset_accumulated_memory_stats()
    del held
