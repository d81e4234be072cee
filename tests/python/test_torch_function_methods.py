"""Which methods and constructors ask a class with a __torch_function__, or a mode, before they answer themselves."""

import io
import pickle

import mica
import numpy as np
import pytest
from mica.overrides import TorchFunctionMode


class Recorded(mica.Tensor):
    """Answers every call with the name of what was called and the keywords."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, args[1:], kwargs


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("register_post_accumulate_grad_hook", (print,)),
        ("register_hook", (print,)),
        ("retain_grad", ()),
        ("__array_wrap__", (np.ones(2),)),
        ("__dlpack__", ()),
        ("__dlpack_device__", ()),
        ("__setstate__", ({"a": 1},)),
    ],
)
def test_methods_ask_their_class(name, args):
    func, given, kwargs = getattr(Recorded(mica.ones(2)), name)(*args)
    assert func == getattr(mica.Tensor, name)
    assert given == args
    assert not kwargs


def test_keywords_of_capsules_are_handed_on():
    func, given, kwargs = Recorded(mica.ones(2)).__dlpack__(stream=None, copy=True)
    assert (func, given, kwargs) == (mica.Tensor.__dlpack__, (), {"stream": None, "copy": True})


def test_the_interface_of_cuda_arrays_asks():
    func, given, _ = Recorded(mica.ones(2)).__cuda_array_interface__
    assert func == mica.Tensor.__cuda_array_interface__.__get__
    assert given == ()
    with pytest.raises(AttributeError, match="non-CUDA tensor"):
        mica.ones(2).__cuda_array_interface__  # noqa: B018


def test_classes_that_hand_on_get_what_tensors_get():
    class Passing(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    x = Passing(mica.arange(3.0)).requires_grad_()
    doubled = x * 2
    doubled.retain_grad()
    doubled.sum().backward()
    assert doubled.grad.tolist() == [1, 1, 1]
    plain = Passing(mica.arange(3.0))
    assert mica.from_dlpack(plain).tolist() == [0, 1, 2]
    assert plain.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(plain).tolist() == [0, 1, 2]


def test_modes_see_these_methods():
    seen = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = mica.ones(2)
    with Watching():
        assert x.__dlpack_device__() == (1, 0)
        assert x.__dlpack__(copy=True) is not None
        made = mica.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=False)
        rows = mica.sparse_csr_tensor([0, 1], [0], [1.0])
    assert seen == [
        mica.Tensor.__dlpack_device__,
        mica.Tensor.__dlpack__,
        mica.sparse_coo_tensor,
        mica.sparse_csr_tensor,
    ]
    assert made.to_dense().tolist() == [1, 0]
    assert rows.to_dense().tolist() == [[1]]


def test_the_right_operand_answers_where_the_left_one_does_not():
    class Silent(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    class Reflected(mica.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            known = (mica.Tensor.__rpow__, mica.Tensor.__rsub__, mica.Tensor.__rfloordiv__)
            return -1 if func in known else NotImplemented

    assert Silent() ** Reflected() == -1
    assert Silent() - Reflected() == -1
    assert Silent() // Reflected() == -1
    with pytest.raises(TypeError):
        Silent() ** Silent()
    with pytest.raises(TypeError):
        Reflected() * Silent()


def test_objects_in_tuples_of_an_index_are_asked():
    class Index:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func

        def __index__(self):
            return 0

    x = mica.ones(2, 2, 2)
    assert x[(0, (Index(), Index()))] is mica.Tensor.__getitem__
    assert x[((Index(),),)] is mica.Tensor.__getitem__
    nested = (0,)
    for _ in range(100_000):
        nested = (nested,)
    with pytest.raises((IndexError, TypeError, ValueError, RuntimeError, RecursionError)):
        x[nested]


def test_broadcast_all_asks_what_it_is_given():
    from mica.distributions.utils import broadcast_all

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func, args

    x = mica.ones(3)
    like = Like()
    assert broadcast_all(like, x) == (mica.functional.broadcast_tensors, (like, x))
    first, second = broadcast_all(x, 2.0)
    assert (first.shape, second.tolist()) == ((3,), [2, 2, 2])


def test_tensors_of_old_constructors_are_views():
    class Sub(mica.Tensor):
        pass

    x = mica.ones(3)
    for kind in (mica.Tensor, Sub, mica.FloatTensor):
        made = kind(x)
        assert made._is_view()
        assert made._base is x
        assert made.data_ptr() == x.data_ptr()
    assert Sub(x[1:])._base is x


def test_old_constructors_keep_gradients():
    x = mica.ones(3, requires_grad=True)
    (mica.Tensor(x) * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        mica.Tensor(x).add_(1)


def test_old_names_of_products_are_handed_over_as_called():
    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    for name in ("batch_norm_update_stats", "dsmm", "hsmm", "spmm"):
        function = getattr(mica, name)
        assert function(*[Like()] * (4 if name.startswith("batch") else 2)) is function
    assert mica.dsmm is mica.spmm


class Labelled(mica.Tensor):
    """Reads an attribute in every call, as classes do that wrap another tensor."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert all(hasattr(x, "label") for x in args if isinstance(x, cls)), f"{func.__name__} comes before the label"
        with mica._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_a_tensor_gets_its_state_before_its_class_is_asked():
    with mica._C.DisableTorchFunctionSubclass():
        x = mica.ones(2).as_subclass(Labelled)
    x.label = "a"
    copied = pickle.loads(pickle.dumps(x))
    assert (type(copied), copied.label) == (Labelled, "a")
    file = io.BytesIO()
    mica.save(x, file)
    for options in ({"weights_only": False}, {}):
        file.seek(0)
        with mica.serialization.safe_globals([Labelled]):
            loaded = mica.load(file, **options)
        assert (type(loaded), loaded.label) == (Labelled, "a")
