"""Declarations of a C++ header: what stands at namespace level, with the comment above it, and classes without their private parts.

It reads these headers, formatted as they are, and not C++ at large: a declaration ends with `;` or with the brace that
closes it, comments are of `//`, access words stand on lines of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass
class Declaration:
    name: str
    namespace: str
    comment: str
    text: str
    line: int
    kind: str  # class, function, alias, value

    @property
    def path(self) -> str:
        return f"{self.namespace}::{self.name}"


def opening_comment(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "\n".join(lines)


def depth_change(line: str) -> int:
    """How far the braces of a line lead in or out; those in comments, texts and characters do not count."""
    bare = re.sub(r"//.*", "", re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "", line))
    return bare.count("{") - bare.count("}")


def declarations(text: str) -> list[Declaration]:
    found: list[Declaration] = []
    spaces: list[str] = []
    comment: list[str] = []
    block = ""  # the comment over declarations that follow each other without an empty line: it belongs to all of them
    lines = text.splitlines()
    i = 0
    while i < len(lines):
        line = lines[i]
        stripped = line.strip()
        opened = re.match(r"(?:inline )?namespace ([\w:]+) \{$", stripped)
        if opened:
            spaces.append(opened[1])
            comment, block = [], ""
        elif re.match(r"\}\s*//\s*namespace", stripped) or (stripped == "}" and spaces):
            spaces.pop()
            comment, block = [], ""
        elif stripped.startswith("//"):
            comment.append(stripped[2:].removeprefix(" "))
        elif not stripped or stripped.startswith("#"):
            comment, block = [], ""
            while stripped.endswith("\\"):  # a macro's lines
                i += 1
                stripped = lines[i].strip()
        else:
            start, depth, body = i, 0, []
            while True:
                body.append(lines[i])
                depth += depth_change(lines[i])
                bare = re.sub(r"//.*", "", lines[i]).rstrip()
                if depth <= 0 and bare.endswith((";", "}", ")")) and not continues(body, lines, i):
                    break
                i += 1
                if i >= len(lines):
                    break
            block = " ".join(comment) or block
            made = declaration(body, "::".join(spaces), block, start + 1)
            if made is not None:
                found.append(made)
            comment = []
        i += 1
    return found


def continues(body: list[str], lines: list[str], i: int) -> bool:
    """A line that ends with a parenthesis is whole only if it is a macro's call: `MICA_MODULE(Linear)`; a requirement never is."""
    bare = re.sub(r"//.*", "", body[-1]).rstrip()
    if bare.lstrip().startswith("requires requires"):
        return True
    if bare.endswith(")"):
        return not re.match(r"MICA_\w+\(", body[0].strip())
    return False


def declaration(body: list[str], namespace: str, comment: str, line: int) -> Declaration | None:
    first = " ".join(part.strip() for part in body[:3])
    plain = re.sub(r"^template <.*?> ?(?=class|struct|\w)", "", first)
    trailing = re.search(r"[;}]\s*//\s*(.*)$", body[0]) if len(body) == 1 else re.search(r"\{\s*//\s*(.*)$", body[0])
    comment = trailing[1] if trailing else comment
    if re.match(r"(class|struct|enum|enum class|union) [\w: ]+;", first) or first.startswith(
        ("friend", "extern template")
    ):
        return None
    klass = re.match(r"(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s*)?(?:MICA_\w+\s+)?(\w+)", plain)
    if klass:
        return Declaration(klass[1], namespace, comment, "\n".join(public_part(body)), line, "class")
    alias = re.match(r"using (\w+) =", plain)
    if alias:
        return Declaration(alias[1], namespace, comment, first, line, "alias")
    concept = re.match(r"concept (\w+)", plain)
    if concept or first.startswith(("using ", "MICA_", "static_assert")):
        return None
    function = re.search(
        r"((?:\w+::)?\w+|operator[^\s(]+|operator\(\))\(",
        re.sub(
            r"\[\[.*?\]\]|decltype\(.*?\)|requires\s*\((?:[^()]|\([^()]*\))*\)|requires requires \{.*?\}|requires .*?(?=\w+ )",
            "",
            plain,
        ),
    )
    if function and "::" in function[1] and not function[1].startswith("operator"):
        return None  # the body of a member, which its class has
    if function and "=" not in plain[: plain.find("(")]:
        return Declaration(function[1], namespace, comment, "\n".join(without_body(body)), line, "function")
    value = re.match(r"(?:inline |constexpr |extern |const |static )*[\w:<>, ]+?[ &*](\w+)(?:\[\])?\s*[={;]", plain)
    if value:
        return Declaration(value[1], namespace, comment, without_body(body)[0], line, "value")
    return None


def without_body(body: list[str]) -> list[str]:
    """A function's declaration: what stands before its brace."""
    kept = []
    for line in body:
        at = line.find("{")
        if at >= 0 and not re.search(r"=\s*\{\s*\}", line):
            kept.append(re.sub(r"\s+(:.*)?$", "", line[:at]) + ";")
            break
        kept.append(line)
    return kept


def public_part(body: list[str]) -> list[str]:
    """A class without its private parts and the bodies of its functions."""
    if body[0].lstrip().startswith("enum"):
        return body
    shown = not re.match(r"(?:template <.*> )?class\b", body[0].strip())
    kept, depth, inside_function = [], 0, None
    for line in body:
        stripped = line.strip()
        if depth == 1 and stripped in ("public:", "private:", "protected:"):
            shown = stripped == "public:"
            if shown:
                kept.append(line)
            continue
        before = depth
        depth += depth_change(line)
        if inside_function is not None:
            if depth <= inside_function:
                inside_function = None
            continue
        if before >= 1 and (shown or depth == 0):
            if (
                before == 1
                and depth > 1
                and "(" in line
                and not stripped.startswith(("struct", "class", "enum", "union"))
            ):
                inside_function = 1
                kept.append(re.sub(r"\s*(:\s.*)?\{.*$", "", line) + ";")
            elif before == 1 and re.search(r"\)[^{;]*(?::[^{]*)?\{.*\}\s*(//.*)?$", line):
                kept.append(re.sub(r"(\)\s*(?:const)?(?: noexcept)?(?: override)?)[^;{]*\{.*\}", r"\1;", line))
            else:
                kept.append(line)
        elif before == 0:
            kept.append(line)
            shown = shown or stripped.startswith("struct")
    while len(kept) > 1 and not kept[-2].strip():
        kept.pop(-2)
    return kept
