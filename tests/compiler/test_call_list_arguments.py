"""Compiled functions on the CPU whose calls C makes again: what functions change of their arguments, and which they are."""

import weakref

import mica as torch
import pytest
from calls_made_again import agree, made_by_c

pytestmark = pytest.mark.usefixtures("replays_begin_early")


def store(x, values):
    values["y"] = torch.sin(x)
    return torch.cos(x)


def append(x, values):
    values.append(torch.sin(x))
    return torch.cos(x)


def replace(x, values):
    values[0] = torch.sin(values[0])
    return torch.cos(x)


def count(x, values):
    values[0] += 1
    return torch.cos(x) * values[0]


def pop(x, values):
    return torch.cos(x) * values.pop("a")


@pytest.mark.parametrize("mode", ("default", "reduce-overhead"))
@pytest.mark.parametrize(
    ("plain", "values"),
    (
        (store, dict),
        (append, list),
        (replace, lambda: [torch.ones(3)]),
        (count, lambda: [1]),
        (pop, lambda: {"a": 2.0}),
    ),
)
def test_lists_and_dicts_that_are_changed(plain, values, mode):
    compiled = torch.compile(plain, mode=mode)
    for i in range(9):
        x, want, got = torch.full((3,), float(i)), values(), values()
        assert torch.equal(compiled(x, got), plain(x, want))
        assert len(got) == len(want)
        for a, b in zip(*([each] if type(each) is list else [each.values()] for each in (got, want)), strict=True):
            assert all(torch.equal(torch.as_tensor(p), torch.as_tensor(q)) for p, q in zip(a, b, strict=True))


def test_a_list_that_is_given_back():
    compiled = torch.compile(lambda x, values: {"y": torch.sin(x), "values": values})
    for _ in range(9):
        values = [torch.ones(3), 2]
        assert compiled(torch.ones(3), values)["values"] is values


@pytest.mark.parametrize("value", (3, torch.ones(2)), ids=("number", "tensor"))
def test_an_attribute_that_an_argument_gets(value):
    def plain(x):
        x.tag = value
        return torch.sin(x)

    compiled = torch.compile(plain)
    for _ in range(9):
        x = torch.ones(3)
        compiled(x)
        assert x.tag is value


def test_lists_that_are_read_are_no_obstacle():
    def plain(x, values):
        return torch.sin(x) * values[0] + values[1]["a"]

    compiled = torch.compile(plain, mode="reduce-overhead")
    for i in range(9):
        values = [torch.full((3,), float(i)), {"a": 2.0}]
        assert torch.equal(compiled(torch.ones(3), values), plain(torch.ones(3), values))
    assert str(compiled._captured) == "replay: 1 graphs for arguments of 1 kinds"


def test_the_base_of_a_view():
    def plain(view, whole):
        return torch.sin(view._base) + whole

    compiled, whole, other = torch.compile(plain), torch.ones(5, 8), torch.full((5, 8), 2.0)
    for view in [whole[1:4]] * 9 + [other[1:4]] * 3:
        assert torch.equal(compiled(view, whole), plain(view, whole))


def test_the_gradient_of_an_argument():
    def plain(weight, grad):
        return torch.sin(weight.grad) + torch.cos(grad)

    compiled, weight, grad = torch.compile(plain), torch.ones(3), torch.ones(3)
    for i in range(12):
        weight.grad = grad if i < 9 else torch.full((3,), 7.0)
        assert torch.equal(compiled(weight, grad), plain(weight, grad))


def test_results_that_are_arguments_are_made_again():
    def plain(x, y):
        return torch.sin(x).contiguous().add_(y.contiguous()).to(y.dtype)

    compiled = torch.compile(plain)
    for i in range(9):
        x, y = torch.full((3,), float(i)), torch.ones(3)
        assert torch.equal(compiled(x, y), plain(x, y))
    assert made_by_c(compiled) > 0
    agree(torch.compile(torch.sin), torch.sin)


def test_states_of_generators():
    def plain(x):
        state = torch.get_rng_state()
        drawn = torch.rand(3)
        torch.set_rng_state(state)
        return drawn + x, torch.rand(3) + x

    generator = torch.Generator()

    def of_its_own(x):
        state = generator.get_state()
        drawn = torch.rand(3, generator=generator)
        generator.set_state(state)
        return drawn + x, torch.rand(3, generator=generator) + x

    for function in (plain, of_its_own):
        compiled = torch.compile(function)
        for _ in range(9):
            assert torch.equal(*compiled(torch.ones(3)))


def test_tensors_that_change_places():
    def plain(x):
        first, second = torch.sin(x), torch.cos(x)
        torch.utils.swap_tensors(first, second)
        return first, second

    compiled = torch.compile(plain)
    for _ in range(9):
        assert [each[0].item() for each in compiled(torch.zeros(3))] == [1.0, 0.0]


def test_tensors_that_are_let_go_within():
    def plain(x):
        made = torch.sin(x)
        reference = weakref.ref(made)
        cosine = torch.cos(made)
        del made
        return cosine * (2.0 if reference() is None else 3.0)

    agree(torch.compile(plain), plain, 9)
