"""Names that programs use from where torch has them: older places, and small helpers."""

import importlib
import types
import warnings

import mica
import pytest
from mica import nn


def test_classes_of_results_of_operations():
    kinds = mica.return_types.all_return_types
    assert type(mica.ones(2, 2).max(0)) in kinds and len(kinds) == 67
    assert type(mica.histogramdd(mica.rand(3, 2), [2, 2])) is mica.return_types.histogramdd
    with pytest.raises(ValueError, match="is already registered as pytree node"):
        mica.return_types.pytree_register_structseq(mica.return_types.max)


def test_other_places():
    assert mica.functional.pca_lowrank is mica.pca_lowrank
    assert mica.functional.svd_lowrank is mica.svd_lowrank
    assert mica.fft.Tensor is mica.Tensor
    assert mica.distributed.distributed_c10d.get_debug_level is mica.distributed.get_debug_level
    assert mica.distributed.ProcessGroupGloo is mica.distributed.distributed_c10d.ProcessGroupGloo
    assert mica.distributed.algorithms.Join is mica.distributed.algorithms.join.Join
    assert not isinstance(mica.ones(1).to_sparse(), mica.cuda.sparse.FloatTensor)


def test_one_number_or_two():
    for fine in (3, (3, 4)):
        nn.functional.assert_int_or_pair(fine, "size", "{} is wrong")
    with pytest.raises(AssertionError, match="size is wrong"):
        nn.functional.assert_int_or_pair((3, 4, 5), "size", "{} is wrong")


def test_versions_are_compared():
    at_least = mica.serialization.check_module_version_greater_or_equal
    module = types.SimpleNamespace(__name__="m", __version__="1.2.3")
    found = [at_least(module, version) for version in ((1, 2, 3), (1, 2, 4), (1,), (2,))]
    assert found == [True, False, True, False]
    module.__version__ = "abc"
    with pytest.raises(RuntimeError, match="'m' module version string is malformed 'abc' and cannot be compared with"):
        at_least(module, (1,))
    with pytest.warns(UserWarning, match="continuing assuming that requirement is met"):
        assert at_least(module, (1,), error_if_malformed=False)
    warnings.filterwarnings("ignore", category=mica.serialization.SourceChangeWarning)


def test_a_warning_that_is_never_given():
    mica.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    with pytest.raises(NotImplementedError, match="Mica does not warn of gradients of other streams"):
        mica.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)
    with pytest.raises(RuntimeError, match="enabled must be a bool, but got int"):
        mica.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(3)


def test_sums_over_gpus_refuse_the_cpu():
    with pytest.raises(AssertionError, match="reduce_add expects all inputs to be on GPUs, but input 0 is on CPU"):
        mica.cuda.comm.reduce_add_coalesced([[mica.ones(1)], [mica.ones(1)]])


@pytest.mark.parametrize(
    ("module", "name"),
    [("observer", "MinMaxObserver"), ("fake_quantize", "FakeQuantize"), ("qconfig", "QConfig"), ("stubs", "QuantStub"),
     ("quantize", "quantize_dynamic"), ("fuse_modules", "fuse_modules"), ("quant_type", "QuantType"),
     ("fuser_method_mappings", "fuse_conv_bn")],
)  # fmt: skip
def test_older_modules_of_quantization(module, name):
    found = getattr(importlib.import_module(f"mica.quantization.{module}"), name)
    assert found is getattr(mica.ao.quantization, name, found) and callable(found)
    for function in ("fuse_modules", "quantize"):  # not the modules of these names
        assert callable(getattr(mica.quantization, function))
