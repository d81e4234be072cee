"""`checkpoint(debug=True)`: where the second run differs from the first, the operators of both are listed."""

import traceback

from mica.utils._python_dispatch import TorchDispatchMode

__all__ = ["Comparison"]


class _Listing(TorchDispatchMode):
    """Notes the operators that run, and from where."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.calls.append((str(func), "".join(traceback.format_stack()[:-1])))
        return result

    def names(self):
        return "".join(f"  {name}\n" for name, _ in self.calls)

    def places(self, label):
        count = len(self.calls)
        return "".join(f"{name}   ({i} of {count} in {label})\n\n{at}\n" for i, (name, at) in enumerate(self.calls, 1))


class Comparison:
    """The operators of both runs of a checkpointed call."""

    def __init__(self):
        self.first, self.second = _Listing(), _Listing()

    def contexts(self):
        return self.first, self.second

    def text(self):
        """What an error says of the two runs."""
        return (
            f"Operators of the original forward, with where they were called:\n\n{self.first.places('original')}\n"
            f"Operators of the recomputation, with where they were called:\n\n{self.second.places('recompute')}\n"
            f"Operations executed during the original forward:\n\n{self.first.names()}\n"
            f"Operations executed during recomputation:\n\n{self.second.names()}\n"
            "You are seeing this error because you passed `debug=True` to checkpoint and the tensors saved by the "
            "original forward differ from those saved by the recomputation. Compare the two lists of operators; calls "
            "of `detach` that are in one of them only are the checkpoint's own."
        )
