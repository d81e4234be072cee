"""The losses of 50 steps with every option, on 2 and 4 processes; the other tests take fewer steps for most of them."""

import importlib

import pytest
import ranks

MODULES = [
    "data_parallel_cases", "option_cases", "sharded_cases", "flat_sharded_cases", "tensor_parallel_cases", "pipeline_cases",
    "context_parallel_cases",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("module", MODULES)
def test_losses_of_fifty_steps(module, size):
    for case in importlib.import_module(module).CASES:
        ranks.check_case(module, case.__name__, size, long=True, limit=900)
