"""torch.accelerator: where there is none, each function says so; tests/backends has the stub's memory."""

import mica as torch
import pytest


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
@pytest.mark.parametrize(
    "name",
    [
        "Graph",
        "empty_cache",
        "empty_host_cache",
        "get_device_capability",
        "get_memory_info",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
        "reset_accumulated_memory_stats",
        "reset_peak_memory_stats",
        "synchronize",
    ],
)
def test_without_an_accelerator(name):
    with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
        getattr(torch.accelerator, name)()


def test_names_have_their_homes():
    from mica.accelerator import graphs, memory

    assert torch.accelerator.Graph is graphs.Graph
    assert all(getattr(torch.accelerator, name) is getattr(memory, name) for name in memory.__all__)
    assert set(torch.accelerator.__all__) <= {*dir(torch.accelerator), *memory.__all__, "Graph"}
