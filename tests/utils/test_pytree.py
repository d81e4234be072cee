"""Nests of containers as flat lists: mica.utils._pytree."""

import collections
import dataclasses

import mica
import pytest
from mica.utils import _pytree as pytree

NEST = {
    "a": [1, (2, 3)],
    "b": collections.OrderedDict(c=4),
    "d": collections.defaultdict(list, {1: 2}),
    "e": collections.deque([1], 5),
}
Pair = collections.namedtuple("Pair", "a b")


def test_flatten_and_back():
    leaves, spec = pytree.tree_flatten(NEST)
    assert leaves == [1, 2, 3, 4, 2, 1] and (spec.num_nodes, spec.num_leaves, spec.num_children) == (12, 6, 4)
    back = pytree.tree_unflatten(leaves, spec)
    assert back == NEST and back["d"].default_factory is list and back["e"].maxlen == 5
    assert pytree.tree_flatten(None) == ([None], pytree.LeafSpec())
    assert pytree.tree_unflatten([5, 6], pytree.tree_structure(Pair(1, 2))) == Pair(5, 6)


def test_specs_print_compare_and_hash_as_torchs():
    spec = pytree.tree_structure(NEST)
    assert repr(spec) == (
        "TreeSpec(dict, ['a', 'b', 'd', 'e'], [TreeSpec(list, None, [*,\n    TreeSpec(tuple, None, [*,\n      *])]),\n"
        "  TreeSpec(OrderedDict, ['c'], [*]),\n  TreeSpec(defaultdict, [<class 'list'>, [1]], [*]),\n"
        "  TreeSpec(deque, 5, [*])])"
    )
    assert spec == pytree.tree_structure(NEST) and hash(spec) == hash(pytree.tree_structure(NEST))
    assert spec != pytree.tree_structure([1]) and pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec
    assert pytree.treespec_tuple([pytree.treespec_leaf()]) == pytree.tree_structure((1,))


def test_maps():
    assert pytree.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}) == {"a": (1, 4), "b": (2, 3)}
    assert pytree.tree_map(lambda a, b: (a, b), (1, 2), (3, [4])) == ((1, 3), (2, [4]))
    assert pytree.tree_map_only(int, lambda x: x + 1, [1, "a"]) == [2, "a"]
    assert pytree.tree_map_only(lambda x: x == 1, lambda x: x + 1, [1, 5]) == [2, 5]
    assert pytree.tree_leaves([1, [2]], is_leaf=lambda x: x == [2]) == [1, [2]]
    assert (
        not pytree.tree_all(bool, [1, 0])
        and pytree.tree_any(bool, [1, 0])
        and pytree.tree_any_only(str, bool, [0, "x"])
    )
    seen = []
    assert pytree.tree_map_(seen.append, [1, 2]) == [1, 2] == seen


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ((1, 2, 3), "Node arity mismatch; expected 2, but got 3."),
        ([1, 2], "Node type mismatch; expected <class 'tuple'>, but got <class 'list'>."),
    ],
)
def test_nests_that_do_not_fit(other, words):
    with pytest.raises(ValueError, match=words):
        pytree.tree_map(max, (1, 2), other)
    with pytest.raises(ValueError, match="missing key"):
        pytree.tree_map(max, {"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="`leaves` has length 1"):
        pytree.tree_unflatten([1], pytree.tree_structure((1, 2)))


def test_ways_to_leaves():
    found, _ = pytree.tree_flatten_with_path({"a": [1, Pair(2, 3)]})
    assert [pytree.keystr(way) for way, _ in found] == ["['a'][0]", "['a'][1].a", "['a'][1].b"]
    assert all(pytree.key_get({"a": [1, Pair(2, 3)]}, way) == leaf for way, leaf in found)
    assert pytree.tree_map_with_path(lambda way, x: (pytree.keystr(way), x), [5]) == [("[0]", 5)]


def test_registered_containers():
    class Box:
        def __init__(self, value):
            self.value = value

    pytree.register_pytree_node(Box, lambda box: ([box.value], None), lambda values, _: Box(*values))
    assert pytree.tree_map(lambda x: x + 1, [Box(1)])[0].value == 2
    with pytest.raises(ValueError, match="already registered"):
        pytree.register_pytree_node(Box, None, None)
    with pytest.raises(ValueError, match="Did not find a flatten_with_keys_fn"):
        pytree.tree_flatten_with_path(Box(1))

    @dataclasses.dataclass
    class Point:
        x: int
        y: int | None = 2

    pytree.register_dataclass(Point)
    assert pytree.tree_map(lambda v: v * 10, Point(1, None)) == Point(10, None)
    assert pytree.tree_flatten(Point(1, 2))[0] == [1, 2]


def test_what_operations_return():
    leaves, spec = pytree.tree_flatten(mica.sort(mica.tensor([2.0, 1.0])))
    assert len(leaves) == 2 and type(pytree.tree_unflatten(leaves, spec)).__name__ == "sort"
    assert pytree.tree_map(lambda x: x, mica.Size([2])) == (2,)
