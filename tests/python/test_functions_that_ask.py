"""Who is asked by __torch_function__, and for which function: values recorded from torch 2.13."""

import inspect

import mica
import mica.nn.functional as F
import pytest
from mica import _C

seen = []


class Like:
    """No tensor, but as good as one."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append((func, args, kwargs or {}))
        return -1

    def __index__(self):
        return 1


class Sub(mica.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__


FUNCTIONS = [
    (function, 1)
    for function in (
        mica.is_complex, mica.numel, mica.get_device, mica.is_nonzero, mica.nonzero, mica.hash_tensor, mica.nuclear_norm,
        mica.indices_copy, mica.sym_int, mica.sym_not, mica.sym_sqrt, mica._sym_cos, mica._fused_rms_norm, mica._assert_async, mica.lobpcg, mica.pca_lowrank, mica.svd_lowrank,
        mica.special.expit, mica.special.psi, mica.special.log1p, mica.linalg.inv, mica.fft.fft, mica.unique, mica.is_distributed,
    )
] + [
    (function, 2)
    for function in (
        mica._assert, mica.sym_max, mica.spmm, F.max_pool1d, F.max_pool2d, F.max_pool3d, F.adaptive_avg_pool2d,
        F.adaptive_max_pool1d, F.adaptive_max_pool2d_with_indices, F.fractional_max_pool2d, F.linear, mica.special.xlogy,
    )
] + [(mica.segment_reduce, 2), (F.linear_cross_entropy, 3), (F.triplet_margin_with_distance_loss, 3)]  # fmt: skip


@pytest.mark.parametrize(("function", "count"), FUNCTIONS, ids=lambda x: getattr(x, "__name__", x))
def test_what_is_no_tensor_is_asked(function, count):
    seen.clear()
    assert function(*[Like() for _ in range(count)]) == -1
    assert seen[0][0] is function


def test_defaults_are_given_by_name_where_torch_says_it_in_python():
    seen.clear()
    x = Like()
    F.max_pool2d(x, 2)
    rest = {"stride": None, "padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    assert seen == [(F.max_pool2d, (x, 2), rest)]


def test_gradients_of_what_is_no_tensor():
    seen.clear()
    x = Like()
    assert mica.autograd.grad(x, x) == -1 and mica.autograd.backward(x) == -1
    assert seen[0][:2] == (mica.autograd.grad, ((x,), (x,))) and seen[1][:2] == (mica.autograd.backward, ((x,),))


def test_elements_of_lists_are_asked():
    for call in (
        lambda x: F.pad(mica.ones(2, 3), [1, x, 0, 0]),
        lambda x: mica.ones(2, 3).view([x, 6]),
        lambda x: F.layer_norm(mica.ones(2, 3), [3, x]),
    ):
        seen.clear()
        assert call(Like()) == -1 and len(seen) == 1


def test_methods_ask_a_class():
    x = mica.ones(2).as_subclass(Sub)
    for name in ("storage", "storage_type", "pin_memory", "qscheme", "dim_order", "is_distributed", "_is_view", "hash_tensor", "unique", "lu",
                 "__nonzero__", "__long__", "xpu"):  # fmt: skip
        assert getattr(x, name)() == name
    assert x.__div__(2) == "__div__" and x.module_load(x) == "module_load" and x.split(1) == "split"
    assert mica.Tensor.unique is not mica.unique and mica.ones(3).unique().tolist() == [1.0]


def test_attributes_are_of_the_base():
    assert mica.Tensor.__mro__ == (mica.Tensor, _C.TensorBase, object)
    assert mica.Tensor.shape.__qualname__ == "TensorBase.shape" and isinstance(mica.ones(1), _C.TensorBase)
    assert mica.Tensor.__name__ == "Tensor" and not isinstance(1, _C.TensorBase)
    with pytest.raises(RuntimeError, match="cannot create"):
        _C.TensorBase()

    class Derived(_C.TensorBase):
        pass

    with pytest.raises(RuntimeError, match="cannot create"):
        Derived()
    with pytest.raises(TypeError):
        object.__new__(Derived)
    with pytest.raises(TypeError):
        mica.ones(1).as_subclass(Derived)


def test_special_functions_are_functions_of_their_own():
    assert mica.special.expit is not mica.sigmoid and mica.special.expit.__name__ == "special_expit"
    x = mica.tensor([0.5, 2.0])
    assert mica.special.expit(x).equal(x.sigmoid()) and mica.special.softmax(x, 0).equal(x.softmax(0))
    assert mica.special.round(x, decimals=1).equal(x) and mica.special.multigammaln(x + 1, 2).equal(
        mica.mvlgamma(x + 1, 2)
    )
    out = mica.empty(2)
    assert mica.special.log1p(x, out=out) is out and out.equal(x.log1p())
    assert mica.vmap(mica.special.psi)(x).equal(x.digamma())
    with pytest.raises(TypeError, match="expected a sequence"):
        mica.overrides.has_torch_function(3)


def test_what_was_switched_off_is_switched_on_again():
    class Kind(mica.Tensor):
        pass

    x = mica.ones(2).as_subclass(Kind)
    for off in (_C.DisableTorchFunction, _C.DisableTorchFunctionSubclass):
        with off():
            assert type(x + 1) is mica.Tensor and _C._is_torch_function_all_disabled() is (
                off is _C.DisableTorchFunction
            )
            with mica.overrides._enable_torch_function():
                assert type(x + 1) is Kind and not _C._is_torch_function_all_disabled()
            guard = _C._EnableTorchFunction()
            assert type(x + 1) is Kind
            del guard
            assert type(x + 1) is mica.Tensor
        assert type(x + 1) is Kind


def test_a_mode_is_no_class():
    class Mode(mica.overrides.TorchFunctionMode):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(RuntimeError, match="classmethod is not supported, please make it a plain method"), Mode():
        mica.ones(1)


def test_functions_that_do_not_ask():
    ignored = mica.overrides.get_ignored_functions()
    assert {mica.zeros, mica.is_tensor, mica.Tensor.as_subclass, mica.set_num_threads} <= ignored
    assert mica.add not in ignored and mica.nn.functional.relu not in ignored


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (mica.add, "(input, other, *, alpha=1, out=None)"),
        (mica.sum, "(input, dim=None, keepdim=False, *, dtype=None, out=None)"),
        (mica.matmul, "(input, other, *, out=None)"),
        (mica.Tensor.add, "(self, other, *, alpha=1)"),
        (mica.Tensor.shape.__get__, "(self)"),
        (mica.max, "(input, dim=None, keepdim=False, *, out=None)"),
    ],
)
def test_stand_ins_have_the_parameters_of_functions(function, parameters):
    stand_in = mica.overrides.get_testing_overrides()[function]
    assert str(inspect.signature(stand_in)) == parameters
    assert stand_in(1) == -1 if "other" not in parameters else stand_in(1, 2) == -1
    with pytest.raises(TypeError, match="missing a required argument"):
        stand_in()


def test_stand_ins_are_of_functions_that_ask():
    stand_ins = mica.overrides.get_testing_overrides()
    assert len(stand_ins) > 1000
    assert not stand_ins.keys() & mica.overrides.get_ignored_functions()
