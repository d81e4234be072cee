"""Patterns of names: "*" stands within a segment, "**" for any number of segments."""

import re

__all__ = ["GlobGroup", "GlobPattern"]

GlobPattern = str | tuple


def _segments(pattern, separator):
    """The expression of a pattern; a segment is matched with the separator before it."""
    parts = []
    for segment in pattern.split(separator):
        if "**" in segment:
            if segment != "**":
                raise ValueError("** can only appear as an entire path segment")
            parts.append(f"({re.escape(separator)}[^{separator}]+)*")
        else:
            words = (re.escape(word) for word in segment.split("*"))
            parts.append(re.escape(separator) + f"[^{separator}]*".join(words))
    return re.compile("".join(parts))


class GlobGroup:
    """Names that match one of the included patterns and none of the excluded ones."""

    def __init__(self, include, *, exclude=(), separator="."):
        self._dbg = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include, self.exclude = (
            [_segments(each, separator) for each in ([given] if isinstance(given, str) else given)]
            for given in (include, exclude)
        )

    def __repr__(self):
        return self._dbg

    def matches(self, candidate):
        candidate = self.separator + candidate
        found = any(each.fullmatch(candidate) for each in self.include)
        return found and not any(each.fullmatch(candidate) for each in self.exclude)
