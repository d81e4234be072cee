"""A page with its examples carried out: each block is followed by what came of it, and a failing one ends the build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import Block, PageError, blocks_of

RUNNER = Path(__file__).with_name("run_page.py")


def fenced(text: str, classes: str) -> str:
    return f"``` {{ .text {classes} }}\n{text.rstrip()}\n```\n"


def with_result(block: Block, result: dict) -> str:
    """The block as it is shown, and behind it what it gave."""
    parts = [f"```{block.language}\n{block.code}```\n"]
    if block.kind == "file":
        parts.insert(0, f'<p class="file-name">{block.options["file"]}</p>\n')
    if result.get("text", "").strip():
        parts.append(fenced(result["text"], ".output"))
    if result.get("raised"):
        parts.append(fenced(result["raised"], ".output .raised"))
    if result.get("left_out"):
        parts.append(fenced(f"({result['left_out']})", ".output"))
    for picture in result.get("pictures", []):
        parts.append(f'<figure class="picture">{picture}</figure>\n')
    return "\n".join(parts)


def executed(text: str, name: str, environment: dict[str, str], timeout: float = 1200) -> str:
    """The page's Markdown with results. Raises PageError with the failing block's line and traceback."""
    blocks = blocks_of(text, name)
    carried_out = [b for b in blocks if b.kind]
    results = run(carried_out, name, environment, timeout) if carried_out else []
    pieces, at = [], 0
    by_start = dict(zip((b.start for b in carried_out), results, strict=True))
    for block in blocks:
        pieces.append(text[at : block.start])
        pieces.append(with_result(block, by_start.get(block.start, {})))
        at = block.end
    return "".join(pieces) + text[at:]


def run(blocks: list[Block], name: str, environment: dict[str, str], timeout: float) -> list[dict]:
    keys = ("kind", "code", "line", "options")
    with tempfile.TemporaryDirectory(prefix="mica-page-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        order = {"page": name, "folder": str(work), "blocks": [{k: getattr(b, k) for k in keys} for b in blocks]}
        answer = Path(folder) / "results.json"
        try:
            done = subprocess.run(
                [sys.executable, RUNNER, answer],
                input=json.dumps(order), text=True, capture_output=True, timeout=timeout,
                env={**os.environ, **environment},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PageError(f"{name}: its examples took more than {timeout:.0f} s") from None
        if done.returncode:
            raise PageError(f"{name}: an example failed\n{done.stderr}")
        return json.loads(answer.read_text().replace(str(work), "."))
