"""The code blocks of a Markdown page: which are run, and what their first line asks for.

```python                       is run, and followed by what it printed, showed or drew
```python raises=IndexError     must raise that, and is followed by the error's words
```python only=cuda             is run where there is such a device, and otherwise shown as it is
```python shown                 is shown and not run: a part of a program
```sh run                       its commands run in the page's own folder, and what they print follows
```cpp file=fit.cpp             is written to a file of that name in the page's folder, and shown (so are cmake, text...)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^```(?P<language>[\w+-]+)(?P<words>[^\n`]*)\n(?P<code>.*?)^```[ \t]*$", re.M | re.S)


@dataclass
class Block:
    language: str
    code: str
    line: int  # of its first line of code, in the page
    start: int
    end: int
    flags: set[str] = field(default_factory=set)
    options: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """python, sh, file, or "" for a block that is only shown."""
        if "file" in self.options:
            return "file"
        if self.language == "python" and "shown" not in self.flags:
            return "python"
        return "sh" if self.language == "sh" and "run" in self.flags else ""


class PageError(Exception):
    """A page asks for what there is not, or one of its examples failed."""


KNOWN_FLAGS, KNOWN_OPTIONS = {"run", "shown"}, {"raises", "only", "file"}


def blocks_of(text: str, name: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        words = match["words"].split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        flags = {word for word in words if "=" not in word}
        line = text.count("\n", 0, match.start("code")) + 1
        unknown = (flags - KNOWN_FLAGS) | (set(options) - KNOWN_OPTIONS)
        if unknown:
            raise PageError(f"{name}:{line - 1}: a code block asks for {sorted(unknown)}, which is unknown")
        found.append(Block(match["language"], match["code"], line, match.start(), match.end(), flags, options))
    return found
