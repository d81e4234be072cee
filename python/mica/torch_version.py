"""The version of torch whose behaviour Mica has, for programs that ask torch for its version."""

import re

__all__ = ["TorchVersion"]


def _key(version):
    """The key by which versions are ordered: by numbers, with pre-releases (2.0.0a0) before the release and local builds
    (2.0+cpu) after it."""
    if isinstance(version, tuple | list):
        version = ".".join(str(part) for part in version)
    public, _, local = str(version).strip().partition("+")
    match = re.match(r"v?(\d+(?:\.\d+)*)(.*)", public)
    if match is None:
        raise ValueError(f"Invalid version: {str(version)!r}")
    numbers = [int(number) for number in match.group(1).split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    rest = match.group(2)
    return numbers, not re.match(r"[._-]?(a|b|c|rc|alpha|beta|pre|preview|dev)", rest), rest, local


class TorchVersion(str):
    """A version as text that compares as a version: with text, with tuples of numbers."""

    __hash__ = str.__hash__

    def _compared(self, other, operation):
        try:
            return operation(_key(self), _key(other))
        except ValueError:
            return operation(str(self), str(other))

    def __lt__(self, other):
        return self._compared(other, lambda a, b: a < b)

    def __le__(self, other):
        return self._compared(other, lambda a, b: a <= b)

    def __gt__(self, other):
        return self._compared(other, lambda a, b: a > b)

    def __ge__(self, other):
        return self._compared(other, lambda a, b: a >= b)

    def __eq__(self, other):
        return self._compared(other, lambda a, b: a == b)

    def __ne__(self, other):
        return not self == other
