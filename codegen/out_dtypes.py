"""Which dtypes an operation takes for out=, and what it says of others: a table by the names of operations, for
src/core/out_dtype.cpp. Operations without an entry take what the result can be cast to."""

from __future__ import annotations

from model import Op
from schema import TableError

TEXT = """// Generated from the entries of ops/*.toml that have an `out_dtype`.

#include "core/out_dtype.h"

namespace mica {{

std::span<const OutDtypeRule> out_dtype_rules() {{
  static constexpr OutDtypeRule kRules[] = {{
{rows}
  }};
  return kRules;
}}

}}  // namespace mica
"""


def generate(ops: list[Op]) -> dict[str, str]:
    rules: dict[str, tuple[str, str]] = {}
    for op in ops:
        for takes, words in op.out_dtype.items():
            if rules.setdefault(op.name, (takes, words)) != (takes, words):
                raise TableError(f"ops/{op.family}.toml: {op.name}: two entries of this name differ in out_dtype")
    rows = [
        f'      {{"{name}", OutDtypeRule::{takes.capitalize()}, "{words}"}},'
        for name, (takes, words) in sorted(rules.items())
    ]
    return {"src/out_dtypes.cpp": TEXT.format(rows="\n".join(rows))} if rows else {}
