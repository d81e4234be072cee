"""The names of a captured graph's inputs."""

import mica
from mica import _C


class InputNames:
    """torch's names for what a graph reads: L_x_ for the argument x, L_self_parameters_weight_ for a parameter."""

    def __init__(self, function, args, kwargs):
        self._known, self._count = {}, 0
        self._written, self._same = {}, {}  # the names of tensors as code has them; how many share each
        owner = function if isinstance(function, mica.nn.Module) else getattr(function, "__self__", None)
        if isinstance(owner, mica.nn.Module):
            for kind, values in (("parameters", owner.named_parameters()), ("buffers", owner.named_buffers())):
                for path, value in values:
                    *modules, name = path.split(".")
                    inner = "".join(f"modules_{part}_" for part in modules)
                    self._add(value, f"L_self_{inner}{kind}_{name}_")
        self._arguments(function, args, kwargs)

    def _add(self, value, name):
        self._known.setdefault(id(value), (name, value))

    def _arguments(self, function, args, kwargs):
        import inspect

        try:
            inner = function.forward if isinstance(function, mica.nn.Module) else function
            given = inspect.signature(inner).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            given = {f"args_{i}": value for i, value in enumerate(args)} | kwargs
        for name, value in given.items():
            self._walk(value, f"L_{name}_")

    def _walk(self, value, name):
        if isinstance(value, _C.TensorBase):
            self._add(value, name)
        elif hasattr(type(value), "_captured_tensor"):  # an array
            self._add(value._tensor, name)
        elif isinstance(value, (list, tuple)):
            for i, each in enumerate(value):
                self._walk(each, f"{name}{i}_")
        elif isinstance(value, dict):
            for key, each in value.items():
                self._walk(each, f"{name}{key}_")

    @staticmethod
    def is_argument(name):
        return not name.startswith(("L_captured_", "L_self_")) or not any(
            part in name for part in ("L_captured_", "parameters_", "buffers_")
        )

    def is_given(self, tensor):
        """Whether a tensor is one of the arguments."""
        known = self._known.get(id(tensor))
        return known is not None and self.is_argument(known[0])

    def given(self):
        """(tensor, name) of the arguments."""
        return [(value, name) for name, value in self._known.values()]

    def of(self, tensor):
        known = self._known.get(id(tensor))
        if known is not None:
            name = known[0]
        else:
            self._count += 1
            name = f"L_captured_{self._count}_"
            self._add(tensor, name)
        plain = "".join(c if c.isalnum() else "_" for c in name)
        if id(tensor) not in self._written:
            # Keys that differ in other characters, or by identity, are told apart by a number.
            count = self._same[plain] = self._same.get(plain, -1) + 1
            self._written[id(tensor)] = f"{plain}{count}_" if count else plain
        return self._written[id(tensor)]
