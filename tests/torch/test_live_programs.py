"""Short programs, as users write them, statement by statement on torch and on Mica: values, strides, texts, errors, warnings.

A file of `programs` holds blocks of statements between lines of dashes; each block runs in a process of its own.
"""

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from docstring_comparison import differences  # noqa: E402

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
RUNNER = HERE / "docstring_runner.py"


def statements(block):
    """The statements of a block, each with whether it is skipped."""
    lines = block.splitlines()
    for node in ast.parse(block).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        source = ast.get_source_segment(block, node) if first == node.lineno else None
        yield source or "\n".join(lines[first - 1 : node.end_lineno]), False


PROGRAMS = {
    f"{path.stem} {number}": list(statements(block))
    for path in sorted((HERE / "programs").glob("*.txt"))
    for number, block in enumerate(path.read_text().split("# ---\n"))
}
# (statement, words of the difference, why)
EXCUSES = [
    (r".*", r"'builtins\.\w+'", "the module of a node's class"),
    (r".*", r"error \('(\w+)', .* instead of \('\1', ", "the same kind of error, in other words"),
    (r".*", r"__array_wrap__ must accept context|__array__ implementation doesn't accept", "of torch's age"),
    (r".*", r"\.stride: |its value\[\d+\]\[\d\]: \('plain'", "torch promises no strides of what it makes anew"),
    (r".*linearize\(.*", r"insert a get_attr Node", "about torch's graphs"),
    (r".*torch\.seed\(\).*", r"next random numbers", "a seed from the system"),
    # Decisions of docs/differences.md.
    (r".*topk.*", r"values=tensor", "ties of topk"),
    (r".*vmap.*(Setup|nonzero).*", r".*", "vmap takes any function"),
    (r".*V2\.apply, in_dims=1.*", r"printed", "the batch comes first"),
    (r".*dual_level.*|.*make_dual.*", r".*", "tangents are the graph's"),
    (r".*names=.*", r".*", "named tensors are kept"),
    # Differences that are not torch's behaviour, and stay so.
    (r".*x\[\.\.\.,\.\.\.,0\].*", r".*", "torch counts an ellipsis twice"),
    (r".*x\['a'\].*", r"warnings", "a string is no sequence of indices"),
    (r".*np\.float32\(2\).*", r".*", "NumPy's numbers are numbers"),
    (r".*tensor\(\[b'a'\]\).*", r".*", "bytes are numbers in torch.tensor(b'a'), too"),
    (r".*requires_grad_\(\).*|.*no_grad.*|^v\[0\] = 1|^x$|.*x\.data\.fill_.*", r"\bz\b", "a view of a leaf that is a view itself"),
    (r".*Exp\(\).*", r"shows", "the text of an object"),
    (r".*_raw_saved_self.*|.*_C\._functions.*|.*__reduce__.*|.*__dlpack_device__.*", r".*", "torch's own insides"),
    (r".*k\.sum\(\)\.backward.*", r"multi", "when a hook on several tensors runs that not all are reached"),
    (r".*set_detect_anomaly.*", r"warnings", "the trace names files"),
    (r".*class A:.*", r"warnings", "advice that says what to do"),
    (r".*z\.(view|add_|clone).*|.*z\.requires_grad_.*", r"z did not change|shows", "a change that is refused does not happen"),
    (r".*torch\.autograd\.grad\(o\.sum.*", r".*", "what a node frees"),
    (r".*", r"\.grad_fn: ", "the last operation of something composed is another one"),
    (r".*set_num_threads\('a'\).*", r"error", "a TypeError"),
]  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """What the statements of every block did, on Mica and on torch."""
    folder = tmp_path_factory.mktemp("programs")
    path = folder / "programs"
    path.write_bytes(pickle.dumps([(name, None, block) for name, block in PROGRAMS.items()]))
    found = []
    for library, command in (("mica", ["-m", "mica", "run"]), ("torch", [])):
        answer = folder / library
        command = [sys.executable, *command, str(RUNNER), str(path), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(pickle.loads(answer.read_bytes()))
    return found


LINE = re.compile(r"""\d+: ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"): (.*)""", re.DOTALL)


def is_excused(line):
    source, words = LINE.fullmatch(line).groups()
    texts = [re.sub(r", grad_fn=<\w+>", "", text) for text in words.removeprefix("shows ").split(" instead of ")]
    if words.startswith("shows ") and len(texts) == 2 and texts[0] == texts[1]:
        return True  # the last operation of something composed is another one
    source = ast.literal_eval(source)
    return any(re.match(of, source, re.DOTALL) and re.search(what, words, re.DOTALL) for of, what, _ in EXCUSES)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(records, name):
    ours, theirs = (found[name] for found in records)
    lines = [line for line in differences(PROGRAMS[name], ours, theirs) if not is_excused(line)]
    assert not lines, "\n".join(lines)
