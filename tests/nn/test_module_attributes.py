"""nn.Module: attributes, registration, calls."""

import mica
import pytest
from mica import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(mica.ones(2))
        self.register_buffer("steps", mica.zeros(2))
        self.register_buffer("scratch", mica.zeros(1), persistent=False)
        self.child = nn.Linear(2, 3)
        self.number = 5

    def forward(self, x, scale=1):
        return self.child(x * self.weight) * scale


# ---- attributes


def test_attributes_are_registered_by_their_kind():
    net = Net()
    assert list(net._parameters) == ["weight"] and list(net._buffers) == ["steps", "scratch"]
    assert list(net._modules) == ["child"] and net.__dict__["number"] == 5
    assert type(net._parameters) is dict and type(net._modules) is dict
    assert net.weight is net._parameters["weight"] and net.child is net._modules["child"]


def test_a_missing_attribute_is_an_error_with_torchs_words():
    with pytest.raises(AttributeError, match="^'Net' object has no attribute 'nothing'$"):
        _ = Net().nothing
    assert not hasattr(Net(), "nothing") and getattr(Net(), "nothing", 3) == 3


def test_what_is_assigned_moves_between_the_dicts():
    net = Net()
    net.number = nn.Parameter(mica.zeros(1))
    assert "number" not in net.__dict__ and "number" in net._parameters
    net.number = None
    assert net._parameters["number"] is None and net.number is None
    net.child = None
    assert net._modules["child"] is None
    net.steps = mica.ones(3)
    assert net._buffers["steps"].shape == (3,)
    net.weight = nn.Parameter(mica.ones(4))
    net.scratch = nn.Linear(1, 1)
    assert "scratch" not in net._buffers and "scratch" not in net._non_persistent_buffers_set
    net.added = nn.Buffer(mica.ones(1), persistent=False)
    assert "added" in net._buffers and "added" in net._non_persistent_buffers_set
    net.plain = mica.ones(1)
    assert "plain" in net.__dict__


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("weight", mica.ones(2), r"cannot assign 'torch.FloatTensor' as parameter 'weight' \(torch.nn.Parameter or"),
        ("weight", 3, "cannot assign 'int' as parameter 'weight'"),
        ("child", 3, r"cannot assign 'int' as child module 'child' \(torch.nn.Module or None expected\)"),
        ("steps", 3, r"cannot assign 'int' as buffer 'steps' \(torch.nn.Buffer, torch.Tensor or None expected\)"),
    ],
)
def test_wrong_kinds_are_refused_and_nothing_changes(name, value, words):
    net = Net()
    before = getattr(net, name)
    with pytest.raises(TypeError, match=words):
        setattr(net, name, value)
    assert getattr(net, name) is before


def test_assignment_before_init():
    class Early(nn.Module):
        def __init__(self, value):
            self.x = value
            super().__init__()

    assert Early(3)  # a plain attribute is fine
    with pytest.raises(AttributeError, match="cannot assign parameters before Module.__init__"):
        Early(nn.Parameter(mica.ones(1)))
    with pytest.raises(AttributeError, match="cannot assign module before Module.__init__"):
        Early(nn.ReLU())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.register_buffer("a.b", mica.ones(1)), KeyError, "buffer name can"),
        (lambda m: m.register_buffer("", mica.ones(1)), KeyError, "empty string"),
        (lambda m: m.register_buffer(3, mica.ones(1)), TypeError, "buffer name should be a string. Got int"),
        (lambda m: m.register_buffer("number", mica.ones(1)), KeyError, "attribute 'number' already exists"),
        (lambda m: m.register_buffer("new", 3), TypeError, "cannot assign 'int' object to buffer 'new'"),
        (lambda m: m.register_parameter("new", mica.ones(1)), TypeError, "object to parameter 'new'"),
        (
            lambda m: m.register_parameter("new", nn.Parameter(mica.ones(1)) * 1),
            TypeError,
            "object to parameter 'new'",
        ),
        (lambda m: m.add_module("new", 3), TypeError, "int is not a Module subclass"),
        (lambda m: m.add_module("number", nn.ReLU()), KeyError, "already exists"),
        (lambda m: m.add_module("a.b", nn.ReLU()), KeyError, "got: a.b"),
        (lambda m: m.get_submodule("child.x"), AttributeError, "Linear has no attribute `x`"),
        (lambda m: m.get_submodule("weight"), AttributeError, "`weight` is not an nn.Module"),
        (lambda m: m.get_parameter("steps"), AttributeError, "`steps` is not an nn.Parameter"),
        (lambda m: m.get_buffer("weight"), AttributeError, "`weight` is not a buffer"),
        (lambda m: m.set_submodule("", nn.ReLU()), ValueError, "without a target name"),
        (lambda m: m.set_submodule("x", nn.ReLU(), strict=True), AttributeError, "Net has no attribute `x`"),
        (lambda m: m.train("yes"), ValueError, "training mode is expected to be boolean"),
        (lambda m: m.to(mica.int32), TypeError, "only accepts floating point or complex dtypes"),
        (lambda m: m.to(), TypeError, "to\\(\\) received an invalid combination"),
        (lambda m: nn.Module()(1), NotImplementedError, 'Module \\[Module\\] is missing the required "forward"'),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call(Net())


def test_arguments_that_init_does_not_take():
    with pytest.raises(TypeError, match="Module.__init__\\(\\) got an unexpected keyword argument 'x'"):
        nn.Module(x=1)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        nn.Module(1)


def test_deleting():
    net = Net()
    del net.weight, net.steps, net.child, net.number
    for name in ("weight", "steps", "child", "number"):
        assert not hasattr(net, name)
    with pytest.raises(AttributeError):
        del net.weight


def test_overriding_attribute_access():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.written = []

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

        def __setattr__(self, name, value):
            if name != "written" and "written" in self.__dict__:
                self.written.append(name)
            super().__setattr__(name, value)

    wrapper = Wrapper(Net())
    assert wrapper.number == 5 and wrapper.weight.shape == (2,)
    wrapper.other = nn.ReLU()
    assert wrapper.written == ["other"] and "other" in wrapper._modules
    wrapper.forward = lambda x: x + 1  # on the instance
    assert wrapper(1) == 2


def test_object_setattr_goes_past_registration():
    net = Net()
    object.__setattr__(net, "hidden", nn.Linear(1, 1))
    assert "hidden" not in net._modules and "hidden" in net.__dict__ and len(list(net.children())) == 1


def test_bases_behind_module_are_called():
    class Recorder:
        def __setattr__(self, name, value):
            self.__dict__.setdefault("log", []).append(name)
            super().__setattr__(name, value)

        def __init_subclass__(cls, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.tag = tag

    class Both(nn.Module, Recorder, tag="yes"):
        def forward(self):
            return 1

    both = Both()
    both.x = 1
    assert both.log == ["x"] and Both.tag == "yes" and both() == 1


def test_a_property_and_a_class_attribute_come_first():
    class WithProperty(nn.Module):
        scale = 2

        @property
        def twice(self):
            return self.scale * 2

    module = WithProperty()
    assert module.twice == 4
    module.scale = 5
    assert module.twice == 10


def test_getattr_may_be_assigned_to_a_class_later():
    class Plain(nn.Module):
        pass

    module = Plain()
    Plain.__getattr__ = lambda self, name: f"made {name}"
    assert module.anything == "made anything"
    del Plain.__getattr__
    with pytest.raises(AttributeError):
        _ = module.anything


# ---- calls


def test_calls_pass_arguments_on():
    class Many(nn.Module):
        def forward(self, *args, **kwargs):
            return args, kwargs

    module = Many()
    assert module() == ((), {})
    assert module(*range(20), **{f"k{i}": i for i in range(9)}) == (
        tuple(range(20)),
        {f"k{i}": i for i in range(9)},
    )
    net = Net()
    assert mica.equal(net(mica.ones(1, 2), scale=2), net(mica.ones(1, 2)) * 2)
    with pytest.raises(TypeError, match="forward\\(\\) missing 1 required positional argument: 'x'"):
        net()


def test_overriding_the_call():
    class Shouting(nn.Module):
        def __call__(self, x):
            return super().__call__(x).upper()

        def forward(self, x):
            return x

    class Odd(nn.Module):
        def _call_impl(self, *args, **kwargs):
            return "mine"

    assert Shouting()("a") == "A" and Odd()(1) == "mine"


def test_a_call_may_be_assigned_to_a_class_later():
    class Plain(nn.Module):
        def forward(self, x):
            return x

    class Derived(Plain):
        pass

    modules = [Plain(), Derived()]
    assert [m(1) for m in modules] == [1, 1] and [m(1) for m in modules] == [1, 1]
    Plain.__call__ = lambda self, x, more=0: x + 10 + more
    assert [m(1) for m in modules] == [11, 11] and modules[0](1, more=5) == 16
    del Plain.__call__
    assert [m(1) for m in modules] == [1, 1]
    modules[0].forward = lambda x: x + 2
    assert modules[0](1) == 3


def test_classes_change_whatever_their_mixins():
    class Mixin:
        tag = "mixed"

    class Mixed(Mixin, nn.Linear):
        pass

    module = Mixed(2, 2)
    module.__class__ = nn.Linear
    assert module(mica.ones(1, 2)).shape == (1, 2)
    module.__class__ = Mixed
    assert module.tag == "mixed"


def test_modules_are_collected_and_referenced_weakly():
    import gc
    import weakref

    module = nn.Sequential(nn.ReLU())
    module[0].parent = [module]  # a cycle
    reference = weakref.ref(module)
    del module
    gc.collect()
    assert reference() is None


def test_abstract_modules_are_not_made():
    from abc import ABC, abstractmethod

    class Abstract(nn.Module, ABC):
        @abstractmethod
        def forward(self, x): ...

    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    assert isinstance(object.__new__(nn.ReLU), nn.ReLU)


def test_forward_may_be_static_or_an_attribute_of_the_class():
    class Static(nn.Module):
        @staticmethod
        def forward(x):
            return x + 1

    class Callable(nn.Module):
        forward = len

    assert Static()(1) == 2
    with pytest.raises(TypeError):
        Callable()()


def test_a_module_without_init_says_what_is_missing():
    class Forgetful(nn.Module):
        def __init__(self):
            pass

        def forward(self):
            return 1

    with pytest.raises(AttributeError, match="'Forgetful' object has no attribute '_backward_hooks'"):
        Forgetful()()


def test_annotations_name_real_types():
    import inspect
    import typing

    for name in dir(mica.nn):
        kind = getattr(mica.nn, name)
        if inspect.isclass(kind) and issubclass(kind, mica.nn.Module):
            typing.get_type_hints(kind), typing.get_type_hints(kind.__init__), typing.get_type_hints(kind.forward)
    assert typing.get_type_hints(mica.nn.Linear.forward) == {"input": mica.Tensor, "return": mica.Tensor}
    assert typing.get_type_hints(mica.nn.MSELoss.forward)["target"] is mica.Tensor
