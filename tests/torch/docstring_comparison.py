"""What differs between two records of one docstring's examples (docstring_runner.py)."""

import re

import numpy as np

# Tensors of these come from memory that nobody has written, so their values mean nothing.
UNWRITTEN = re.compile(
    r"\bempty(_like|_strided|_permuted|_quantized)?\(|new_empty|\.resize_(as_)?\(|skip_init|TypedStorage\("
    r"|\b(Float|Double|Half|Long|Int|)Tensor\(\s*\d|swap_tensors|causal_lower_right|causal_upper_left"
    r"|(quantized|nnq|nndq|dynamic)\.(Linear|Conv|LinearReLU|Embedding)"  # torch leaves their first weights unwritten
)
# These compute the rounding error of something else.
RESIDUAL = re.compile(r"\bdist\(|- torch\.eye|norm\(.* - ")
# Texts in which torch speaks of itself, and which are not true of Mica (tests/python/test_warnings.py has the same
# list).
ABOUT_TORCH = re.compile(
    r"Sparse invariant checks are implicitly|Sparse \w+ tensor support is in beta|The PyTorch API of nested tensors"
    r"|ComplexHalf support is experimental|index_reduce\(\) is in beta|Creating a tensor from a list of numpy"
    r"|torch\.quantize_per_tensor, torch\.quantize_per_channel and other quantized|torch\.searchsorted\(\): |`torch\.jit\.script` is deprecated"
    r"|torch\.ao\.quantization is deprecated|The current implementation of the DynamicQuantized"
    r"|Warning only once for all operators,  other operators may also be overridden"
)
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?|nan|inf")
EPSILON = {"float16": 2.0**-10, "float32": 2.0**-23, "complex64": 2.0**-23, "float64": 2.0**-52, "complex128": 2.0**-52}
STEPS = (
    64  # of the format's last digit, that results of several operations may be apart, relative to the greatest element
)


def close(ours, theirs, dtype=None):
    """Whether two arrays hold the same numbers, but for the last digits of their format."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    if ours.dtype.kind not in "fc":
        return bool(np.array_equal(ours, theirs))
    epsilon = 2.0**-7 if dtype == "torch.bfloat16" else EPSILON.get(str(ours.dtype), 2.0**-23)
    with np.errstate(all="ignore"):
        finite = np.abs(theirs[np.isfinite(theirs)])
        scale = finite.max() if finite.size else 0
        return bool(np.allclose(ours, theirs, rtol=STEPS * epsilon, atol=STEPS * epsilon * scale, equal_nan=True))


def of_values(ours, theirs, is_written=True, where=""):
    """Where two descriptions differ, in words."""
    if ours is None or theirs is None or ours[0] != theirs[0]:
        if ours != theirs:
            yield f"{where}: {short(ours)} instead of {short(theirs)}"
        return
    kind, facts, rest = ours
    if kind == "tensor":
        for key in sorted(facts.keys() | theirs[1].keys()):
            a, b = facts.get(key), theirs[1].get(key)
            if isinstance(a, tuple) and a and a[0] == "tensor" and isinstance(b, tuple):
                yield from of_values(a, b, is_written, f"{where}.{key}")
            elif key == "parts" and a and b and len(a) == len(b):
                for number, (x, y) in enumerate(zip(a, b, strict=True)):
                    yield from of_values(x, y, is_written, f"{where}[{number}]")
            elif key == "quantizer" and a and b:
                yield from of_values(a[1], b[1], is_written, f"{where}.scale")
            elif a != b:
                yield f"{where}.{key}: {short(a)} instead of {short(b)}"
        if is_written and rest is not None and theirs[2] is not None and not close(rest, theirs[2], facts["dtype"]):
            yield f"{where}: values {short(rest)} instead of {short(theirs[2])}"
    elif kind in ("number", "array"):
        if facts != theirs[1]:
            yield f"{where}: {facts} instead of {theirs[1]}"
        elif is_written and rest is not None and not close(rest, theirs[2]):
            yield f"{where}: {short(rest)} instead of {short(theirs[2])}"
    elif kind in ("sequence", "dict", "module"):
        if kind == "module":
            if not same_text(facts, theirs[1]):
                yield f"{where}: {facts} instead of {theirs[1]}"
        elif facts != theirs[1]:
            yield f"{where}: {facts} instead of {theirs[1]}"
        if kind == "sequence":
            ours_by, theirs_by = dict(enumerate(rest)), dict(enumerate(theirs[2]))
        else:
            ours_by, theirs_by = rest, theirs[2]
        if list(ours_by) != list(theirs_by):
            yield f"{where}: keys {short(list(ours_by))} instead of {short(list(theirs_by))}"
        for key in ours_by.keys() & theirs_by.keys():
            yield from of_values(ours_by[key], theirs_by[key], is_written, f"{where}[{key}]")
    elif kind == "optimizer":
        if facts != theirs[1]:
            yield f"{where}: {facts} instead of {theirs[1]}"
        yield from of_values(rest, theirs[2], is_written, where)
    elif ours != theirs and not (
        kind == "object" and facts[0] == theirs[1][0] and same_text(facts[1], theirs[1][1], is_written)
    ):
        yield f"{where}: {short(ours)} instead of {short(theirs)}"


def heard(record):
    """The warnings of a record, without those that are about torch alone."""
    return [(kind, words) for kind, words in record.get("warnings", []) if not ABOUT_TORCH.match(words)]


def short(what, most=300):
    if isinstance(what, np.ndarray):
        what = what.ravel()[:8].tolist() if what.ndim else what.item()
    text = repr(what)
    return text if len(text) <= most else text[:most] + "..."


def same_text(ours, theirs, is_written=True):
    """Whether two texts are the same, but for the last digits of numbers with a point."""
    if ours == theirs:
        return True
    mine, others = NUMBER.findall(ours), NUMBER.findall(theirs)
    if NUMBER.sub("#", ours) != NUMBER.sub("#", theirs) or len(mine) != len(others):
        return not is_written
    return not is_written or all(
        a == b or ("." in a + b and near(float(a), float(b))) for a, b in zip(mine, others, strict=True)
    )


def near(a, b):
    return abs(a - b) <= 2e-4 * max(1.0, abs(a), abs(b))


def reads_unwritten(source, names):
    return bool(UNWRITTEN.search(source) or RESIDUAL.search(source)) or any(
        re.search(rf"\b{re.escape(name)}\b", source) for name in names
    )


def differences(statements, ours, theirs):
    """What differs, one line each: the number of the statement, its source, and what."""
    if isinstance(ours, str) or isinstance(theirs, str):
        if ours != theirs:
            yield f"{ours if isinstance(ours, str) else 'ran'} instead of {theirs if isinstance(theirs, str) else 'ran'}"
        return
    unwritten = set()
    for number, ((source, skip), mine, other) in enumerate(zip(statements, ours, theirs, strict=True)):
        if skip:
            continue
        where = f"{number}: {source[:200]!r}"
        written = not reads_unwritten(source, unwritten)
        if not written:
            unwritten |= {name for name in other.get("names", {}) if not name.startswith("(")}
        for what, part in (("error", 0), ("error", 1)):
            a, b = mine.get(what), other.get(what)
            if (a and a[part]) != (b and b[part]) and (
                part == 0 or (a and b and a[0] == b[0] and not same_words(a[1], b[1]))
            ):
                yield f"{where}: {what} {a} instead of {b}"
        if not same_text(mine.get("printed", ""), other.get("printed", ""), written):
            yield f"{where}: printed {mine.get('printed')!r} instead of {other.get('printed')!r}"
        if ("repr" in mine) != ("repr" in other) or not same_text(mine.get("repr", ""), other.get("repr", ""), written):
            yield f"{where}: shows {mine.get('repr')!r} instead of {other.get('repr')!r}"
        elif "value" in mine and "value" in other:
            for line in of_values(mine["value"], other["value"], written, "its value"):
                yield f"{where}: {line}"
        if heard(mine) != heard(other):
            yield f"{where}: warnings {heard(mine)} instead of {heard(other)}"
        a, b = mine["names"], other["names"]
        for name in sorted(a.keys() | b.keys()):
            if (name in a) != (name in b):
                if name in unwritten:
                    continue  # it may have held the new values before
                yield f"{where}: {name} {'changed' if name in a else 'did not change'}"
            else:
                for line in of_values(a[name], b[name], written or name not in unwritten, name):
                    yield f"{where}: {line}"


def same_words(ours, theirs):
    """Whether an error begins with torch's words."""
    return ours.startswith(theirs[:40]) or same_text(ours, theirs)
