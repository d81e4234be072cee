"""Containers: sequences, lists and dicts of modules and of parameters."""

from collections import OrderedDict

import mica
import pytest
from mica import nn


def relus(count):
    return [nn.LeakyReLU(i) for i in range(count)]


def slopes(container):
    return [m.negative_slope for m in container]


def test_sequential_as_a_sequence():
    net = nn.Sequential(*relus(4))
    assert len(net) == 4 and net[-1].negative_slope == 3 and slopes(net[1:3]) == [1, 2]
    assert isinstance(net[1:3], nn.Sequential) and list(net[1:3]._modules) == ["1", "2"]
    net[0] = nn.LeakyReLU(9)
    del net[1]
    assert slopes(net) == [9, 2, 3] and list(net._modules) == ["0", "1", "2"]
    assert net.pop(0).negative_slope == 9 and slopes(net) == [2, 3]
    net.insert(1, nn.LeakyReLU(5)).append(nn.LeakyReLU(6)).extend([nn.LeakyReLU(7)])
    assert slopes(net) == [2, 5, 3, 6, 7]
    net.insert(-1, nn.LeakyReLU(8))
    assert slopes(net) == [2, 5, 3, 6, 8, 7]
    del net[1:4]
    assert slopes(net) == [2, 8, 7]
    for call, error in [
        (lambda: net[7], "index 7 is out of range"),
        (lambda: net.insert(9, nn.ReLU()), "Index out of range: 9"),
    ]:
        with pytest.raises(IndexError, match=error):
            call()


def test_sequential_arithmetic():
    a, b = nn.Sequential(*relus(2)), nn.Sequential(nn.LeakyReLU(5))
    assert slopes(a + b) == [0, 1, 5] and slopes(a * 2) == [0, 1, 0, 1] and slopes(2 * b) == [5, 5]
    a += b
    b *= 3
    assert slopes(a) == [0, 1, 5] and slopes(b) == [5, 5, 5]
    with pytest.raises(ValueError, match="add operator supports only objects of Sequential class, but <class 'int'>"):
        a + 1
    with pytest.raises(ValueError, match="Non-positive multiplication factor 0"):
        a * 0
    with pytest.raises(TypeError, match="unsupported operand"):
        a * 1.5


def test_sequential_names_and_calls():
    net = nn.Sequential(OrderedDict(first=nn.Linear(2, 3), second=nn.ReLU()))
    assert net.first is net[0] and list(net.state_dict()) == ["first.weight", "first.bias"]
    assert net(mica.ones(1, 2)).shape == (1, 3)
    net[1] = nn.Tanh()
    assert isinstance(net.second, nn.Tanh)


def test_module_list():
    modules = nn.ModuleList(relus(3))
    modules.append(nn.LeakyReLU(7))
    modules += relus(1)
    modules.insert(1, nn.LeakyReLU(8))
    assert slopes(modules) == [0, 8, 1, 2, 7, 0] and slopes(modules[2:4]) == [1, 2]
    assert slopes(modules + relus(2)) == [0, 8, 1, 2, 7, 0, 0, 1]
    del modules[0]
    assert modules.pop(-1).negative_slope == 0 and slopes(modules) == [8, 1, 2, 7]
    modules[-1] = nn.LeakyReLU(3)
    assert modules[3].negative_slope == 3 and list(modules._modules) == ["0", "1", "2", "3"]
    with pytest.raises(TypeError, match="ModuleList.extend should be called with an iterable, but got int"):
        modules.extend(3)
    with pytest.raises(NotImplementedError, match='Module \\[ModuleList\\] is missing the required "forward"'):
        modules(1)
    with pytest.raises(IndexError, match="index 4 is out of range"):
        modules[4]


def test_module_dict():
    modules = nn.ModuleDict([["b", nn.ReLU()], ["a", nn.Tanh()]])
    assert list(modules) == ["b", "a"] and "a" in modules and len(modules) == 2
    modules.update({"c": nn.Sigmoid()})
    modules["d"] = nn.ReLU()
    del modules["b"]
    assert isinstance(modules.pop("a"), nn.Tanh) and list(modules.keys()) == ["c", "d"]
    assert [k for k, _ in modules.items()] == ["c", "d"] and len(list(modules.values())) == 2
    for value, error, words in [
        (3, TypeError, "iterable of key/value pairs, but got int"),
        ([3], TypeError, "sequence element #0 should be Iterable"),
        ([["a", "b", "c"]], ValueError, "has length 3; 2 is required"),
    ]:
        with pytest.raises(error, match=words):
            modules.update(value)
    modules.clear()
    assert not modules._modules


def test_parameter_list():
    values = nn.ParameterList([mica.ones(2), nn.Parameter(mica.zeros(3), requires_grad=False), "text"])
    assert isinstance(values[0], nn.Parameter) and not values[1].requires_grad and values[-1] == "text"
    assert [n for n, _ in values.named_parameters()] == ["0", "1"] and len(values) == 3
    values.append(mica.ones(1)).extend([mica.ones(1)])
    values += [5]
    values[0] = mica.ones(4)
    assert len(values) == 6 and values[0].shape == (4,) and len(values[1:3]) == 2 and list(values)[2] == "text"
    with pytest.raises(TypeError, match="ParameterList.extend should be called with an iterable, but got Tensor"):
        values.extend(mica.ones(2))
    with pytest.raises(RuntimeError, match="ParameterList should not be called."):
        values()


def test_parameter_dict():
    values = nn.ParameterDict({"b": mica.ones(2), "a": mica.ones(1)})
    assert list(values) == ["a", "b"]  # a plain dict is sorted
    assert list(nn.ParameterDict(OrderedDict(b=mica.ones(1), a=mica.ones(1)))) == ["b", "a"]
    values["n"] = 3
    assert values.get("n") == 3 and values.get("x", 4) == 4 and values.setdefault("m", 5) == 5
    assert list(reversed(values)) == ["m", "n", "b", "a"] and values.popitem() == ("m", 5)
    assert values.pop("n") == 3 and "n" not in values and len(values) == 2
    merged = values | nn.ParameterDict({"c": mica.ones(1)})
    assert list(merged) == ["a", "b", "c"] and merged["a"] is values["a"]
    values |= {"z": mica.ones(1)}
    assert isinstance(values["z"], nn.Parameter) and list(values.copy()) == ["a", "b", "z"]
    assert list(values.fromkeys(["p", "q"], 1).items()) == [("p", 1), ("q", 1)]
    del values["z"]
    values.clear()
    assert len(values) == 0 and list(values.parameters()) == []
    with pytest.raises(TypeError, match="cannot be used as a key as it is not a string"):
        values[3] = mica.ones(1)


def test_old_container():
    with pytest.warns(FutureWarning, match="`nn.Container` is deprecated"):
        assert "a" in nn.Container(a=nn.ReLU())._modules
