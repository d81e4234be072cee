"""What is said where a program relies on more than dynamic_shapes allows, with torch's words and suggested fixes."""

import re

__all__ = ["Violations", "refined"]


class Violations:
    """Sentences about sizes, and what would have to be said of the sizes instead."""

    def __init__(self):
        self._found, self._fixes = [], []  # (title, sentence, line of the program)

    def __bool__(self):
        return bool(self._found)

    def _add(self, title, sentence, line, fixes):
        if any(sentence == known for _, known, _ in self._found):
            return
        self._found.append((title, sentence, line))
        self._fixes += [fix for fix in fixes if fix not in self._fixes]

    def fixed(self, key, where, number, line=""):
        """Add the message for a size that the program fixes to a constant."""
        title = key or where
        self._add(
            title,
            f"You marked {title} as dynamic but your code specialized it to be a constant ({number}). If you're using "
            "mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either "
            "Dim.STATIC or Dim.AUTO.",
            line,
            [f"{key} = {number}"] if key else [],
        )

    def equal(self, key, where, other_key, other_where, line=""):
        """Add the message for two sizes that the program needs to be equal."""
        self._add(
            key,
            f"The values of {key} = {where} and {other_key or other_where} = {other_where} must always be equal.",
            line,
            [f"{key} = {other_key}"] if other_key else [],
        )

    def related(self, key, where, other_key, other_where, distance):
        """Add the message for two sizes whose difference the program needs to be a number."""
        sign = "+" if distance > 0 else "-"
        self.follows(key, where, other_key, other_where, f"{other_where} {sign} {abs(distance)}")

    def follows(self, key, where, other_key, other_where, expression):
        """Add the message for a size that the program needs to be an expression of another one."""
        text = expression.replace(other_where, other_key or other_where)
        self._add(
            key,
            f"The values of {key} = {where} must always be related to the values of {other_key or other_where} = {other_where} by "
            f"{key} = {text}.",
            "",
            [f"{key} = {text}"] if other_key else [],
        )

    def narrowed(self, key, where, said, found, line=""):
        """Add the message for a size that the program needs to be in another range."""
        low, high = found
        ends = [f"min={low}"] if low is not None and low > 2 else []
        ends += [f"max={high}"] if high is not None else []
        top = "IntInfinity()" if high is None else high
        self._add(
            key,
            f"Not all values of {key} = {where} in the specified range{_range(key, said)} satisfy the generated guard "
            f"{low} <= {where} and {where} <= {top}",
            line,
            [f"{key} = Dim({key!r}, {', '.join(ends)})"] if ends else [],
        )

    def divided(self, key, where, said, divisor, ends):
        """Add the message for a size that the program needs to be a multiple of a number; `ends` are those of the part."""
        low = f", min={ends.lower}" if ends.lower is not None and ends.lower > 2 else ""
        high = f", max={ends.upper}" if ends.upper is not None else ""
        fixes = [f"_{key} = Dim('_{key}'{low}{high})", f"{key} = {divisor}*_{key}"]
        self.guarded(key, where, said, f"({where} % {divisor}) == 0", fixes=fixes)

    def guarded(self, key, where, said, guard, line="", fixes=()):
        """Add the message for a guard that the declared sizes do not imply."""
        self._add(
            key,
            f"Not all values of {key} = {where} in the specified range{_range(key, said)} satisfy the generated guard {guard}.",
            line,
            fixes,
        )

    def error(self):
        from mica._dynamo.exc import UserError, UserErrorType

        found = sorted(self._found, key=lambda each: each[0])
        text = f"Constraints violated ({', '.join(dict.fromkeys(title for title, _, _ in found))})!"
        text += "".join(f"\n  - {sentence}" + (f"\n  {line}" if line else "") for _, sentence, line in found)
        if self._fixes:
            fixes = sorted(self._fixes, key=lambda fix: "Dim(" not in fix)
            text += "\nSuggested fixes:\n" + "\n".join(f"  {fix}" for fix in fixes)
        return UserError(UserErrorType.CONSTRAINT_VIOLATION, text)


def _range(key, said):
    low, high = said
    text = key if low <= 2 else f"{low} <= {key}"
    text = text if high is None else f"{text} <= {high}"
    return "" if text == key else f" {text}"


# ---- what a program does with such an error

_DIM = re.compile(r"Dim\('(\w+)'((?:, (?:min|max)=-?\w+)*)\)")
_DERIVED = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?: ([+-]) (\d+))?")


def _fixes(text, Dim):
    """{name: what is said of the size} out of the text of an error."""
    _, found, lines = text.partition("Suggested fixes:")
    if not found:
        raise ValueError("refine_dynamic_shapes_from_suggested_fixes: the text has no suggested fixes")
    made, later = {}, {}
    for line in lines.strip().splitlines():
        name, sign, value = (each.strip() for each in line.partition("="))
        if not sign or not name.isidentifier():
            break
        if re.fullmatch(r"\d+", value):
            made[name] = int(value)
        elif dim := _DIM.fullmatch(value):
            ends = dict(each.split("=") for each in dim[2].split(", ") if each)
            made[name] = Dim(dim[1], **{key: int(end) for key, end in ends.items() if end.lstrip("-").isdigit()})
        elif derived := _DERIVED.fullmatch(value):
            later[name] = derived
        else:
            raise ValueError(f"refine_dynamic_shapes_from_suggested_fixes: {line.strip()!r} is not understood")
    return made, later


def refined(text, shapes, Dim, DerivedDim):
    """dynamic_shapes with what an error suggests."""
    made, later = _fixes(text, Dim)
    known = {}

    def collect(value):
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
            collect(each)
        if isinstance(value, (Dim, DerivedDim)):
            root = value if isinstance(value, Dim) else value.root
            known.setdefault(root.__name__, root)

    collect(shapes)

    def named(name):
        if name in later:
            factor, root, sign, number = later[name].groups()
            value = named(root)
            value = value * int(factor) if factor else value
            return value if number is None else value + int(number) * (-1 if sign == "-" else 1)
        return made[name] if name in made else known.get(name, Dim(name))

    def new(value):
        if isinstance(value, dict):
            return {key: new(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(new(each) for each in value)
        if isinstance(value, Dim):
            return named(value.__name__)
        if isinstance(value, DerivedDim):
            if value.__name__ in made or value.__name__ in later:
                return named(value.__name__)
            return named(value.root.__name__) * value.factor + value.number
        return value

    return new(shapes)
