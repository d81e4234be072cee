"""The fake tensors of a graph's values."""

from mica import _C
from mica.fx.interpreter import Interpreter

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a graph on fake tensors and keeps each node's in `node.meta["val"]`."""

    def __init__(self, module, mode=None):
        from mica._subclasses.fake_tensor import FakeTensorMode

        super().__init__(module)
        self._mode = FakeTensorMode(allow_non_fake_inputs=True) if mode is None else mode

    def run_node(self, n):
        result = super().run_node(n)
        n.meta["val"] = result
        return result

    def propagate(self, *args):
        """Run on inputs like these; the output."""
        return self.propagate_dont_convert_inputs(
            *(self._mode.from_tensor(value) if isinstance(value, _C.TensorBase) else value for value in args)
        )

    def propagate_dont_convert_inputs(self, *args):
        """Run on fake inputs; the output."""
        with self._mode:
            return self.run(*args)
