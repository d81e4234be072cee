"""Private names that packages take from torch for layers, averages and workers of their own."""

import mica
import pytest


def test_clipped_sigmoid_stays_inside_of_the_interval():
    from mica.distributions.transforms import _clipped_sigmoid

    finfo = mica.finfo(mica.float32)
    y = _clipped_sigmoid(mica.tensor([-1000.0, 0.0, 1000.0]))
    assert y.tolist() == [finfo.tiny, 0.5, 1.0 - finfo.eps]


def test_masks_of_padding_are_checked():
    from mica.nn.functional import _check_key_padding_mask

    mask = mica.zeros(2, 5, dtype=mica.bool)
    assert _check_key_padding_mask(mask, 5, 2) is None
    with pytest.raises(AssertionError, match=r"Expected key_padded_mask.shape\[0\] to be 3, but got 2"):
        _check_key_padding_mask(mask, 4, 3)
    with pytest.raises(AssertionError, match=r"Expected key_padded_mask.shape\[1\] to be 4, but got 5"):
        _check_key_padding_mask(mask, 4, 2)


def test_tensors_are_grouped_for_averages():
    from mica.optim.swa_utils import _group_tensors_by_device_and_dtype

    a, b = mica.ones(2), mica.ones(2, dtype=mica.float64)
    groups = _group_tensors_by_device_and_dtype([[a, b, a]])
    assert {dtype: len(lists[0]) for (_, dtype), (lists, _) in groups.items()} == {mica.float32: 2, mica.float64: 1}


def test_a_call_that_waits_for_cuda():
    calls = []
    mica.cuda._lazy_call(lambda: calls.append(1), seed=True)
    assert len(calls) == mica.cuda.is_available()


def test_backward_passes_through_other_processes_are_refused():
    from mica.distributed.autograd import context

    assert not mica.distributed.autograd.is_available()
    with pytest.raises(RuntimeError, match="torch.distributed.autograd is not available"), context():
        pass


def test_workers_know_of_numpy():
    from mica.utils.data._utils import HAS_NUMPY, MP_STATUS_CHECK_INTERVAL

    assert HAS_NUMPY and MP_STATUS_CHECK_INTERVAL == 5.0


def test_other_names_of_what_is_there():
    from mica.distributed.distributed_c10d import _get_global_rank

    assert _get_global_rank is mica.distributed.get_global_rank
    assert mica.autograd.DeviceType.CPU == 0 and mica.autograd.DeviceType.CUDA == 1


def test_there_is_no_torchscript_to_enable():
    from mica.jit._state import _enabled

    assert not _enabled and _enabled.enabled is False


def test_the_folder_of_an_extension(tmp_path, monkeypatch):
    from mica.utils.cpp_extension import _get_build_directory

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folder = _get_build_directory("packages/kernels", verbose=False)
    assert folder.startswith(str(tmp_path)) and folder.endswith("/packages/kernels")
    assert (tmp_path / folder).is_dir()
