"""A profile of CUDA where there is none."""

import mica as torch
import pytest
from mica.autograd import profiler as autograd_profiler
from mica.profiler import ProfilerActivity, profile


def test_asking_for_cuda_without_one():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU to profile")
    both = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"), both as recorded:
        torch.zeros(2)
    assert recorded.key_averages()
    with pytest.warns(UserWarning, match="CUDA is not available"), autograd_profiler.profile(use_device="cuda"):
        pass
    alone = profile(activities=[ProfilerActivity.CUDA])
    with pytest.warns(UserWarning), pytest.raises(AssertionError, match="No activities specified for the profiler"):
        alone.start()
    with pytest.warns(FutureWarning, match="`use_cuda` is deprecated"):
        profile(use_cuda=True)
