"""Modules that hold parameters: in a list, in a dict. Other values are kept too, and not trained."""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from mica._C import Tensor
from mica._functions.settings import typename
from mica.nn.modules.module import Module
from mica.nn.parameter import Parameter


def _as_parameter(value):
    """Tensors become parameters, other values stay what they are."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _describe(name, value, type_name):
    """What a repr shows of one parameter: its type, size and device."""
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    sizes = "x".join(str(size) for size in value.size())
    device = f" ({value.device})" if value.device.type not in ("cpu", "meta") else ""
    return f"  ({name}): {kind} containing: [{type_name(value)} of size {sizes}{device}]"


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def _name_at(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return str(index + len(self) if index < 0 else index)

    def __getitem__(self, idx):
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(len(self))))
        return getattr(self, self._name_at(idx))

    def __setitem__(self, idx, param):
        setattr(self, self._name_at(idx), _as_parameter(param))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def __dir__(self):
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value):
        """Add a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Add values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self):
        return "\n".join(_describe(i, value, lambda tensor: tensor.dtype) for i, value in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """Parameters by name, in the order in which they came."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    @staticmethod
    def _key_to_attr(key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}')."
            )
        return key

    def __getitem__(self, key):
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key, value):
        name = self._key_to_attr(key)
        self._keys[key] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """Another dict of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key, default=None):
        """The value of a key, which is set to the default first if it is not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self):
        """Remove all values."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Take out the value of a key."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Take out the key that came last, with its value."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key, default=None):
        """The value of a key, or the default."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys, default=None):
        """A dict with the same value for all keys."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        return self._keys.keys()

    def items(self):
        return ((key, self[key]) for key in self._keys)

    def values(self):
        return (self[key] for key in self._keys)

    def update(self, parameters):
        """Add values from a mapping (sorted by key, unless it is ordered) or from pairs."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            parameters = parameters.items()
        elif isinstance(parameters, Mapping):
            parameters = sorted(parameters.items())
        for i, pair in enumerate(parameters):
            if not isinstance(pair, Iterable):
                raise TypeError(
                    f"ParameterDict update sequence element #{i} should be Iterable; is{type(pair).__name__}"
                )
            if len(pair) != 2:
                raise ValueError(f"ParameterDict update sequence element #{i} has length {len(pair)}; 2 is required")
            self[pair[0]] = pair[1]

    def extra_repr(self):
        return "\n".join(_describe(key, value, typename) for key, value in self.items())

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other):
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other):
        self.update(other)
        return self
