"""A tensor and its Python object have one identity, whoever holds them."""

import gc
import weakref

import mica as torch
import pytest


class Sub(torch.Tensor):
    pass


def grad_holder():
    """A leaf whose gradient is held by C++ alone."""
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    return x


def test_one_object_per_tensor():
    x = grad_holder()
    assert x.grad is x.grad
    assert x.grad_fn is None and x.is_leaf


def test_attributes_outlive_the_last_python_reference():
    x = grad_holder()
    x.grad.note = "kept"
    gc.collect()
    assert x.grad.note == "kept"
    x.grad.note = "changed"  # ownership has gone back and forth once by now
    assert x.grad.note == "changed"


def test_weak_references_see_one_life():
    x = grad_holder()
    seen = weakref.ref(x.grad)
    assert seen() is x.grad
    x.grad = None
    assert seen() is None


def test_a_subclass_stays_what_it_is():
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.ones(2).as_subclass(Sub)
    assert type(x.grad) is Sub
    x.grad.note = 1
    gc.collect()
    for _ in range(3):
        assert type(x.grad) is Sub and x.grad.note == 1


def test_slots_of_a_subclass_survive():
    class Slotted(torch.Tensor):
        __slots__ = ("extra",)

    x = torch.ones(2, requires_grad=True)
    g = torch.ones(2).as_subclass(Slotted)
    g.extra = [1, 2]
    x.grad = g
    del g
    for _ in range(3):
        assert x.grad.extra == [1, 2]


def test_a_weakly_referenced_object_can_outlive_its_owner():
    x = grad_holder()
    seen = weakref.ref(x.grad)
    alive = seen()
    x.grad = None
    assert alive.tolist() == [1.0, 1.0]
    del alive
    assert seen() is None


def test_attributes_make_cycles_that_are_collected():
    x = torch.ones(2)
    x.me = x
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_a_collected_object_is_not_tracked_when_its_memory_is_used_again():
    x = torch.ones(2)
    x.itself = x
    del x
    gc.collect()
    fresh = [torch.ones(2) for _ in range(200)]
    assert not any(gc.is_tracked(t) for t in fresh)
    for t in fresh:
        t.note = t
    del fresh, t
    gc.collect()


def test_plain_tensors_are_not_tracked():
    assert not gc.is_tracked(torch.ones(2))


def test_many_wrappers_come_and_go():
    x = torch.ones(300, 2)
    for _ in range(3):
        rows = [x[i] for i in range(300)]
        assert sum(r[0].item() for r in rows) == 300
        del rows


def test_hash_and_equality():
    x, y = torch.ones(2), torch.ones(2)
    assert len({x, y, x}) == 2 and hash(x) == id(x)
    assert (x == y).tolist() == [True, True] and (x == None) is False  # noqa: E711


@pytest.mark.parametrize("make", [lambda: torch.Tensor(2, 3), lambda: torch.Tensor([[1, 2, 3]] * 2)])
def test_the_old_constructor(make):
    assert make().shape == (2, 3) and make().dtype is torch.float32


def test_subclass_constructor():
    s = Sub([1, 2])
    assert type(s) is Sub and s.tolist() == [1.0, 2.0]
    data = torch.ones(2)
    p = torch.Tensor._make_subclass(Sub, data, True)
    assert p.requires_grad and p.data_ptr() == data.data_ptr() and not data.requires_grad


def test_methods_can_be_added_to_the_class():
    torch.Tensor.doubled = lambda self: self + self
    try:
        assert torch.ones(2).doubled().tolist() == [2.0, 2.0]
    finally:
        del torch.Tensor.doubled


# ---- the class of an object, which a program may assign


def churn():
    """Objects are made, reused and collected: one that was put back wrongly would show."""
    for _ in range(3):
        kept = [torch.ones(1) for _ in range(300)]
        del kept
        gc.collect()


def test_a_parameter_that_becomes_a_plain_tensor():
    for _ in range(200):
        p = torch.nn.Parameter(torch.ones(2))
        p.__class__ = torch.Tensor
        assert type(p) is torch.Tensor and p.tolist() == [1, 1]
        del p
    churn()


def test_a_plain_tensor_that_becomes_a_parameter_and_lives_on_in_a_graph():
    for _ in range(5):  # a collection takes half a second after thousands of tests
        x = grad_holder()
        g = x.grad
        g.__class__ = Sub
        for _ in range(3):  # each time the object is handed to the impl and comes back
            del g
            gc.collect()
            g = x.grad
            assert type(g) is Sub and g.tolist() == [1, 1]
        object.__dict__["__class__"].__set__(g, torch.Tensor)  # not through the tensor's own setattr
        assert type(g) is torch.Tensor
        g.note = [g]  # a cycle
        del g, x
    churn()


died = []


class WithSlots(torch.Tensor):
    __slots__ = ("held",)

    def __del__(self):
        died.append(1)


def test_objects_keep_what_they_have_through_many_lives():
    """Python finalises an object once; each time that only a graph holds the tensor, its object is saved all the same."""

    class Held:
        pass

    x = grad_holder()
    g = x.grad
    g.__class__ = Sub
    held = Held()
    reference = weakref.ref(held)
    g.note, g.list = held, [1, 2]
    del held
    for _ in range(4):
        gc.collect()
        del g
        gc.collect()
        g = x.grad
        assert type(g) is Sub and g.note is reference() and g.list == [1, 2]
    x.grad = None
    del g
    gc.collect()
    assert reference() is None


def test_cycles_of_an_object_in_its_second_life():
    x = grad_holder()
    g = x.grad
    g.__class__ = Sub
    for _ in range(3):
        g.cycle = [g]
        g.value = 7
        del g
        gc.collect()
        g = x.grad
        assert type(g) is Sub and g.value == 7
        del g.cycle
    reference = weakref.ref(g)
    g.cycle = [g]
    x.grad = None
    del g
    gc.collect()
    assert reference() is None


def test_slots_and_finalizers_of_a_class_whose_objects_come_back():
    class Held:
        pass

    x = torch.ones(2, requires_grad=True)
    g = torch.ones(2).as_subclass(WithSlots)
    g.held = Held()
    reference = weakref.ref(g.held)
    x.grad = g
    died.clear()
    for _ in range(3):
        del g
        gc.collect()
        g = x.grad
        assert type(g) is WithSlots and g.held is reference()
    x.grad = None
    del g
    gc.collect()
    assert reference() is None and len(died) == 1

    # A class below one whose objects have come back.
    class Below(WithSlots):
        pass

    y = torch.ones(2).as_subclass(Below)
    y.held, y.more = Held(), 3
    reference = weakref.ref(y.held)
    del y
    gc.collect()
    assert reference() is None
    churn()


def test_an_object_that_a_weak_reference_brought_back_can_be_swapped():
    for number in range(50):
        x = torch.randn(4, 16)
        x.mark, view, reference = number, x[1:], weakref.ref(x)
        del x  # the view keeps the tensor, and the tensor its object
        other = torch.zeros(4, 16)
        torch._C._swap_tensor_impl(reference(), other)
        assert other.mark == number and view._base is other
        del other, reference
        kept = [torch.full((n,), 7.0) for n in (1, 16, 64, 200)]  # memory that was given back too early
        assert not bool((view == 7.0).all()) and len(kept) == 4


def test_classes_of_nodes_have_torchs_names():
    x = torch.ones(2, requires_grad=True)
    node = (x * 2).grad_fn
    assert repr(type(node)) == "<class 'MulBackward0'>"
    assert type(node).__name__ == "MulBackward0"
    assert repr(type(node.next_functions[0][0])) == "<class 'AccumulateGrad'>"
    assert isinstance(node, torch.autograd.graph.Node)
