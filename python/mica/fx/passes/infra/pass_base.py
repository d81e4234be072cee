"""The base class of passes."""

import collections

__all__ = ["PassBase", "PassResult"]

PassResult = collections.namedtuple("PassResult", ["graph_module", "modified"])
PassResult.__doc__ = "A graph's module after a pass, and whether the pass changed it."


class PassBase:
    """A pass: `call(graph_module)` returns a PassResult. `requires` and `ensures` check before and after."""

    def __call__(self, graph_module):
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    def call(self, graph_module):
        """The pass itself."""
        raise NotImplementedError(f"{type(self).__name__} has no call(graph_module)")

    def requires(self, graph_module):
        """Checks before the pass."""

    def ensures(self, graph_module):
        """Checks after the pass."""
