"""Runs the code of one page and says what came of each block. A program of its own: a page cannot disturb another.

Reads {"page": name, "folder": path, "blocks": [...]} from stdin and writes one result for each block to the file that the
first argument names: {"text": what was printed, "pictures": [SVG or HTML], "raised": words of the error, "left_out": why}.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import linecache
import os
import re
import subprocess
import sys
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

# Colours that matplotlib is given, and the words of the site's style sheet that stand for them.
COLOURS = {
    "#0b7f7b": "var(--share)", "#b5620a": "var(--own)", "#7a4fa3": "var(--result)", "#2f6db3": "var(--blue)",
    "#c2371f": "var(--limit)", "#737c83": "var(--faint)", "#000000": "currentColor",
}  # fmt: skip


def prepare_matplotlib() -> None:
    os.environ.setdefault("MPLBACKEND", "agg")
    if importlib.util.find_spec("matplotlib") is None:
        return
    import matplotlib

    cycle = [colour for colour in COLOURS if colour not in ("#000000", "#737c83")]
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "mica", "figure.figsize": (6.4, 3.2), "font.size": 10,
        "font.family": "sans-serif", "axes.prop_cycle": matplotlib.cycler(color=cycle), "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "grid.color": "#737c83", "grid.alpha": 0.25, "legend.frameon": False,
    })  # fmt: skip


def figures() -> list[str]:
    """The figures that the block left open, as SVG in the site's colours."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    drawn = []
    for number in plt.get_fignums():
        buffer = io.StringIO()
        plt.figure(number).savefig(
            buffer, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None}
        )
        text = buffer.getvalue()
        text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.S)
        text = re.sub(r"(\d+\.\d\d)\d+", r"\1", text)  # hundredths of a point
        for colour, word in COLOURS.items():
            text = text.replace(colour, word)
        text = re.sub(r"font: ([^;\"]*?px)[^;\"]*", r"font: \1 var(--sans)", text)
        text = re.sub(r"<text ", '<text fill="currentColor" ', text)
        drawn.append(re.sub(r"\n\s*\n", "\n", text))
    plt.close("all")
    return drawn


def is_drawing(value) -> bool:
    """What matplotlib's calls return says nothing that the picture does not."""
    if isinstance(value, tuple | list):
        return bool(value) and all(v is None or is_drawing(v) for v in value)
    return type(value).__module__.partition(".")[0] == "matplotlib"


def show(value, printed: io.StringIO, pictures: list[str]) -> None:
    """What an interpreter shows for the last line of a block."""
    if value is None or is_drawing(value):
        return
    picture = getattr(type(value), "_repr_html_", None)
    if picture is not None:
        pictures.append(picture(value))
    else:
        print(repr(value), file=printed)


def run_python(block: dict, page: str, scope: dict) -> dict:
    only = block["options"].get("only")
    if only == "cuda" and not scope["mica"].cuda.is_available():
        return {"left_out": "not run here: the machine that built this page has no GPU"}
    # Lines of a traceback are lines of the page.
    tree = ast.parse("\n" * (block["line"] - 1) + block["code"], page)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, pictures = io.StringIO(), []
    expected = block["options"].get("raises")
    raised = None
    with redirect_stdout(printed), redirect_stderr(printed), warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *_: print(f"{category.__name__}: {message}", file=printed)
        try:
            exec(compile(tree, page, "exec"), scope)
            if last is not None:
                show(eval(compile(ast.Expression(last.value), page, "eval"), scope), printed, pictures)
        except Exception as error:
            if expected is None or expected not in {c.__name__ for c in type(error).__mro__}:
                raise
            raised = f"{type(error).__name__}: {error}"
    if expected is not None and raised is None:
        raise AssertionError(f"{page}:{block['line']}: this example should raise {expected}, and did not")
    text, raised = (reader_paths(part) if part else part for part in (printed.getvalue(), raised))
    return {"text": text, "pictures": pictures + figures(), "raised": raised}


def reader_paths(text: str) -> str:
    """Without the paths of the machine that builds, and the calls of this program in tracebacks."""
    text = re.sub(rf'  File "{re.escape(__file__)}", line \d+, in \w+\n(?:    .*\n)*', "", text)
    package = Path(sys.modules["mica"].__file__).parent.parent
    return text.replace(f"{package}/", "").replace(f"{package.resolve()}/", "")


def run_commands(block: dict, page: str) -> dict:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block["code"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise AssertionError(f"{page}:{block['line']}: the commands ended with {done.returncode}:\n{done.stdout}")
    return {"text": reader_paths(done.stdout)}


def remember_lines(order: dict) -> None:
    """Tracebacks and reports show the page's lines as they would a file's."""
    lines: list[str] = []
    for block in order["blocks"]:
        if block["kind"] == "python":
            lines += ["\n"] * (block["line"] - 1 - len(lines)) + block["code"].splitlines(keepends=True)
    linecache.cache[order["page"]] = (sum(map(len, lines)), None, lines, order["page"])


def main() -> int:
    order = json.load(sys.stdin)
    os.chdir(order["folder"])
    import mica

    sys.modules["torch"] = mica  # `import torch` in a page means Mica, as under `mica run`
    prepare_matplotlib()
    remember_lines(order)
    scope = {"__name__": "__main__", "mica": mica}
    results = []
    for block in order["blocks"]:
        try:
            if block["kind"] == "file":
                path = Path(block["options"]["file"])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block["code"])
                results.append({})
            elif block["kind"] == "python":
                results.append(run_python(block, order["page"], scope))
            else:
                results.append(run_commands(block, order["page"]))
        except BaseException:
            traceback.print_exc()
            print(f"{order['page']}:{block['line']}: this example failed", file=sys.stderr)
            return 1
    Path(sys.argv[1]).write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
