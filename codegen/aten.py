"""The operations as torch.ops.aten knows them: every schema, and the Python function that computes it.

One line per schema: the namespace of the function ("" is torch, "Tensor" a method), its name, how it takes arguments
("p": as the schema orders them, "k": by name), and the schema.
"""

from __future__ import annotations

from dataclasses import replace

from cpp import is_inplace_schema, wants_inplace, wants_out
from dispatched import out_overload
from entries import Writer
from model import Op
from schema import Schema

HEADER = '"""The schemas of torch.ops.aten, with the functions that compute them. Generated from ops/*.toml."""\n\n'


def inplace_text(schema: Schema) -> str:
    """The schema of the form that changes its first argument."""
    name = schema.name + "_" + (f".{schema.overload}" if schema.overload else "")
    arguments = schema.text.partition("(")[2].rpartition(" -> ")[0]
    return f"{name}(Tensor(a!) {arguments.removeprefix('Tensor ').removeprefix('Tensor(a) ')} -> Tensor(a!)"


def out_text(schema: Schema) -> str:
    """The schema of the form that writes into tensors of the caller."""
    overload = out_overload(schema)
    inner = schema.text.partition("(")[2].rpartition(") -> ")[0]
    count = len(schema.returns)
    names = ["out"] if count == 1 else [r.name or f"out{i}" for i, r in enumerate(schema.returns)]
    outs = ", ".join(f"Tensor({chr(97 + i)}!) {name}" for i, name in enumerate(names))
    star = "" if "*, " in inner else "*, "
    options = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
    inner = inner.replace(f", *, {options}", "").replace(f", {options}", "")
    star = star if "*, " in inner else "*, "
    returned = "Tensor(a!)" if count == 1 else "(" + ", ".join(f"Tensor({chr(97 + i)}!)" for i in range(count)) + ")"
    return f"{schema.name}.{overload}({inner + ', ' if inner else ''}{star}{outs}) -> {returned}"


def lines(op: Op):
    base = op.python_name or op.name
    way = "k" if op.python_schemas else "p"
    for schema in op.schemas:
        in_place = op.kind == "inplace" or is_inplace_schema(schema)
        if in_place or op.has("function") or op.has("method"):
            space = op.namespace if op.has("function") else "Tensor"
            yield f"{space}\t{base}\t{way}\t{schema.text}"
        if in_place:
            continue
        if wants_inplace(op, schema):
            space = op.namespace if op.has("inplace_function") else "Tensor"
            yield f"{space}\t{base}_\t{way}\t{inplace_text(schema)}"
        if wants_out(op, schema) and op.has("function"):
            yield f"{op.namespace}\t{base}\t{way}\t{out_text(schema)}"


def with_aliases(op: Op):
    """The lines of an operation under each of its names."""
    for line in lines(op):
        yield line
        space, name, way, schema = line.split("\t")
        for alias in op.aliases:
            called = alias + name.removeprefix(op.python_name or op.name)
            yield f"{space}\t{called}\t{way}\t{alias + schema.removeprefix(op.name)}"


def only_aten(ops: list[Op]) -> list[Op]:
    """Operations that only torch.ops.aten has, since a dispatch mode is handed them: functions of _C._aten."""
    found = []
    for op in ops:
        schemas = [s for s in op.schemas if Writer(op, s).dispatch_way() in ("below", "whole")]
        if schemas and not op.python:
            forms = [form for form in op.forms if form == "function"] or ["function"]
            plain = {"python": True, "python_name": "", "python_schemas": [], "aliases": [], "namespace": "aten"}
            found.append(replace(op, schemas=schemas, forms=forms, **plain))
    return found


def generate(ops: list[Op]) -> dict[str, str]:
    text = [line for op in ops if op.python for line in with_aliases(op)]
    text += ["_C._" + line for op in only_aten(ops) for line in lines(op)]
    body = "\n".join(sorted(set(text))).replace("\\", "\\\\")
    return {"package/_generated/aten_schemas.py": f'{HEADER}TEXT = """\\\n{body}\n"""\n'}
