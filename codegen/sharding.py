"""How spread tensors go through each operation: the rules of mica.distributed.tensor, by the names of torch.ops.aten."""

from __future__ import annotations

from model import Op

HEADER = '"""How spread tensors go through operations: docs/sharding.md. Generated from ops/*.toml."""\n\n'


def rule_of(op: Op) -> str:
    """The rule that the entry says, or that follows from its kind."""
    return op.sharding or ("pointwise" if op.kind == "pointwise" else "")


def generate(ops: list[Op]) -> dict[str, str]:
    rules: dict[str, str] = {}
    for op in ops:
        rule = rule_of(op)
        for schema in op.schemas if rule else ():
            for name in (op.name, *op.aliases):
                full_name = name + schema.full_name.removeprefix(schema.name)
                rules[full_name] = rule
    body = "".join(f'    "{name}": "{rule}",\n' for name, rule in sorted(rules.items()))
    return {"package/_generated/sharding.py": f"{HEADER}RULES = {{\n{body}}}\n"}
