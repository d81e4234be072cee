"""profile_memory counts the bytes of tensors; the error without CUDA."""

import mica as torch
import pytest
from mica.profiler import ProfilerActivity, profile


def _usage(run, shapes=False):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        kept = run()
    del kept
    return {event.key: event.cpu_memory_usage for event in recorded.key_averages()}


def test_bytes_are_those_of_tensors():
    assert _usage(lambda: torch.zeros(2, 3))["aten::zeros"] == 24
    x = torch.zeros(2, 3)
    usage = _usage(lambda: (x.t(), x.reshape(6), x + 1, torch.zeros(300, 300)))
    assert usage["aten::t"] == 0 and usage["aten::reshape"] == 0
    assert usage["aten::add"] == 24 and usage["aten::zeros"] == 360000


def test_what_an_operation_frees_counts_too():
    def grow():
        x = torch.zeros(10)
        x.resize_(100)
        return x

    usage = _usage(grow)
    assert usage["aten::zeros"] == 40 and usage["aten::resize_"] == 360


def test_the_error_without_cuda_says_no_path_of_this_machine():
    try:
        torch.zeros(2, device="cuda")
        pytest.skip("there is a CUDA backend")
    except RuntimeError:
        pytest.skip("there is a CUDA backend, which finds no device")
    except AssertionError:
        pass
    for call in (lambda: torch.zeros(2, device="cuda"), lambda: torch.ones(2).cuda()):
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled") as caught:
            call()
        assert "/" not in str(caught.value)
