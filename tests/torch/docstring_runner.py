"""Runs the examples of docstrings and records what each statement did: docstring_runner.py EXAMPLES RECORDS.

The program imports torch, and `mica run` makes that Mica. Each docstring runs in a fork of its own, so that neither
a crash nor a setting reaches the next one. EXAMPLES and RECORDS are pickles.
"""

import ast
import builtins
import contextlib
import importlib
import io
import os
import pickle
import random
import re
import resource
import signal
import sys
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np
import torch

SECONDS = 20  # that one docstring may take
# Modules that are otherwise imported at their first use: once here, not once in each fork.
FIRST_USED_LATE = (
    "torch._dynamo",
    "torch.func",
    "torch._higher_order_ops",
    "torch._subclasses",
    "torch.profiler",
    "torch.fx",
    "torch.nested",
    "torch.optim.lr_scheduler",
    "torch.testing",
    "numpy.random",
)
MOST_ELEMENTS = 20_000  # of a tensor that is compared whole
# Names that examples assume, made only where an example reads the name and does not bind it.
GIVEN = {
    "model": "torch.nn.Linear(2, 2)",
    "net": "torch.nn.Linear(2, 2)",
    "module": "torch.nn.Linear(2, 2)",
    "loss_fn": "torch.nn.MSELoss()",
    "loss_function": "torch.nn.MSELoss()",
    "criterion": "torch.nn.MSELoss()",
    "optimizer": "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)",
    "opt": "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)",
    "input": "torch.randn(3, 2)",
    "target": "torch.randn(3, 2)",
    "data": "[(torch.randn(3, 2), torch.randn(3, 2)) for _ in range(3)]",
    "dataset": "[(torch.randn(2), torch.randn(2)) for _ in range(3)]",
    "loader": "[(torch.randn(3, 2), torch.randn(3, 2)) for _ in range(3)]",
    "data_loader": "[(torch.randn(3, 2), torch.randn(3, 2)) for _ in range(3)]",
    "dataloader": "[(torch.randn(3, 2), torch.randn(3, 2)) for _ in range(3)]",
    "x": "torch.randn(3, 2)",
    "train": "lambda *arguments: optimizer.step() if 'optimizer' in globals() else None",
    "validate": "lambda *arguments: 0.5",
}
NEEDS = {"optimizer": ["model"], "opt": ["model"]}


def name_of_type(value):
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".replace("mica.", "torch.").replace("mica._C.", "torch.")


def scrubbed(text):
    """A text without what differs from run to run: addresses, seconds, places of files."""
    text = re.sub(r"0x[0-9a-f]+", "0x", str(text))
    text = re.sub(r"\bmica\b", "torch", text)
    text = re.sub(r" ?\(Triggered internally at .*?\)", "", text)
    return re.sub(r"(/[\w.@+-]+){3,}", "/path", text)


def array_of(x):
    """A tensor's values as NumPy's."""
    if x.numel() > MOST_ELEMENTS:
        x = x.flatten()[:: -(-x.numel() // MOST_ELEMENTS)]
    if x.dtype.is_complex and x.dtype == torch.complex32:
        x = x.to(torch.complex64)
    elif x.dtype.is_floating_point and x.dtype not in (torch.float16, torch.float32, torch.float64):
        x = x.to(torch.float32)
    return x.resolve_conj().resolve_neg().numpy().copy()


def described_tensor(x):
    facts = {
        "type": name_of_type(x),
        "dtype": str(x.dtype).replace("mica.", "torch."),
        "layout": str(x.layout).replace("mica.", "torch."),
        "device": str(x.device),
        "requires_grad": x.requires_grad,
        "is_leaf": x.is_leaf,
    }
    if x.grad_fn is not None:
        facts["grad_fn"] = type(x.grad_fn).__name__
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = x.detach()
        if x.is_nested:
            facts["parts"] = [described_tensor(part) for part in plain.unbind()]
            return ("tensor", facts, None)
        facts["shape"] = tuple(x.shape)
        if x.device.type == "meta":
            return ("tensor", facts, None)
        if x.layout == torch.strided:
            facts["stride"] = tuple(x.stride())
            facts["offset"] = x.storage_offset()
            if x.is_quantized:
                facts["quantizer"] = (
                    str(x.qscheme()).replace("mica.", "torch."),
                    described(x.q_scale() if x.qscheme() == torch.per_tensor_affine else x.q_per_channel_scales()),
                )
                plain = plain.int_repr()
        else:
            if x.layout == torch.sparse_coo:
                facts["coalesced"] = x.is_coalesced()
                facts["nnz"] = x._nnz()
            plain = plain.to_dense()
        if x.is_leaf and x.grad is not None:
            facts["grad"] = described_tensor(x.grad)
        return ("tensor", facts, array_of(plain))


def described(value, depth=0):
    """What is compared of a value: kind, facts that are equal, numbers that are close."""
    if isinstance(value, torch.Tensor):
        try:
            return described_tensor(value)
        except Exception as error:
            return ("undescribed", scrubbed(f"{type(error).__name__}: {error}"), None)
    if isinstance(value, (bool, int, str, bytes, type(None), slice, range)):
        return ("plain", scrubbed(repr(value)), None)
    if isinstance(value, (float, complex)):
        return ("number", type(value).__name__, np.array(value))
    if isinstance(value, np.ndarray):
        return ("array", (str(value.dtype), value.shape), value.copy() if value.dtype.kind in "biufc" else None)
    if isinstance(value, np.generic):
        return ("array", (str(value.dtype),), np.array(value))
    if depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        values = value if isinstance(value, (list, tuple)) else sorted(value, key=repr)
        return ("sequence", name_of_type(value), [described(v, depth + 1) for v in values[:200]])
    if depth < 4 and isinstance(value, dict):
        return (
            "dict",
            name_of_type(value),
            {scrubbed(repr(k)): described(v, depth + 1) for k, v in list(value.items())[:200]},
        )
    if isinstance(value, torch.nn.Module):
        state = {k: described(v, depth + 1) for k, v in value.state_dict().items()} if depth < 3 else {}
        return ("module", scrubbed(repr(value)), state)
    if isinstance(value, torch.optim.Optimizer):
        return ("optimizer", name_of_type(value), described(value.state_dict(), depth + 1))
    if isinstance(value, (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, types.MethodType)):
        return None  # its use is compared
    if isinstance(value, (types.GeneratorType, types.CodeType, types.FrameType)) or hasattr(value, "__next__"):
        return ("object", name_of_type(value), None)
    return (
        "object",
        (name_of_type(value), scrubbed(value) if type(value).__repr__ is not object.__repr__ else ""),
        None,
    )


def namespace():
    """What stands ready for every example."""
    names = {"__name__": "__main__", "torch": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim}
    names |= {"np": np, "numpy": np, "Tensor": torch.Tensor}
    shorthands = {"D": "torch.distributions", "tq": "torch.ao.quantization", "nndq": "torch.ao.nn.quantized.dynamic"}
    shorthands |= {"fwAD": "torch.autograd.forward_ad", "nnq": "torch.ao.nn.quantized"}
    shorthands |= {name: name for name in ("math", "os", "functools", "itertools", "io", "tempfile")}
    return names | {short: importlib.import_module(name) for short, name in shorthands.items()}


def read_and_unbound(statements):
    """Names that the statements read at their top before they bind them."""
    bound, read = set(), []
    for source, _ in statements:
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        stored |= {a.arg for a in nodes if isinstance(a, ast.arg)}
        stored |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        stored |= {
            (a.asname or a.name).split(".")[0]
            for n in nodes
            if isinstance(n, (ast.Import, ast.ImportFrom))
            for a in n.names
        }
        loaded = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        outer = stored if not isinstance(tree.body[0], ast.Assign) else set()
        read += [n for n in loaded if n not in bound and n not in outer]
        bound |= stored
    return list(dict.fromkeys(read))


def prepare(name, home, statements):
    """The names that an example begins with: the usual ones, those of the modules around what is documented, and what it takes as given."""
    names = namespace()
    unbound = read_and_unbound(statements)
    parts = name.split(".")
    places = [".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
    places.insert(1, home or "torch")
    for wanted in unbound:
        if wanted in names or wanted in GIVEN or hasattr(builtins, wanted):
            continue
        for place in places:
            try:
                module = importlib.import_module(place)
            except Exception:
                continue
            if wanted in vars(module) or (not wanted.startswith("_") and hasattr(module, wanted)):
                names[wanted] = getattr(module, wanted)
                break
    for wanted in unbound:
        for given in [*NEEDS.get(wanted, []), wanted]:
            if given in GIVEN and (given not in names):
                names[given] = eval(GIVEN[given], names)
    return names


def run(name, home, statements):
    """One record for each statement: error, printed text, warnings, names that changed."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    main = types.ModuleType("__main__")  # pickles find an example's classes there
    sys.modules["__main__"] = main
    vars(main).update(prepare(name, home, statements))
    names = vars(main)
    torch.manual_seed(0)
    before, records = {}, []
    for source, skip in statements:
        record = {}
        records.append(record)
        if skip:
            continue
        tree = ast.parse(source)
        printed = io.StringIO()
        with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(printed):
            warnings.simplefilter("always")
            try:
                if isinstance(tree.body[0], ast.Expr):
                    value = eval(compile(ast.Expression(tree.body[0].value), "<example>", "eval"), names)
                    if value is not None:
                        record["value"] = described(value)
                        record["repr"] = scrubbed(repr(value))
                else:
                    exec(compile(tree, "<example>", "exec"), names)
            except BaseException as error:  # an example may call exit
                record["error"] = (type(error).__name__, scrubbed(error))
        if printed.getvalue():
            record["printed"] = scrubbed(printed.getvalue())
        if told:
            record["warnings"] = [(w.category.__name__, scrubbed(w.message)) for w in told]
        state = torch.get_rng_state()
        after = {"(the next random numbers)": described(torch.rand(2, dtype=torch.float64))}
        for key, value in names.items():
            if key.startswith("__"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    what = described(value)
                except Exception as error:
                    what = ("undescribed", scrubbed(f"{type(error).__name__}: {error}"), None)
            if what is not None:
                after[key] = what
        torch.set_rng_state(state)
        pickled = {key: pickle.dumps(what) for key, what in after.items()}
        record["names"] = {key: after[key] for key in pickled if pickled[key] != before.get(key)}
        before = pickled
    return records


def run_apart(name, home, statements):
    """The records of a docstring, which runs in a fork, or the reason why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        child = os.fork()
        if not child:
            code = 1
            try:
                os.makedirs(Path(folder) / "work")
                os.chdir(Path(folder) / "work")
                null = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
                signal.alarm(10 * SECONDS)  # for one that waits
                answer.write_bytes(pickle.dumps(run(name, home, statements)))
                code = 0
            except BaseException as error:
                answer.write_bytes(pickle.dumps(f"{type(error).__name__}: {error}"))
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return f"ended by signal {os.WTERMSIG(status)}"
        return pickle.loads(answer.read_bytes()) if answer.exists() else f"ended with {status}"


def main(examples, records):
    torch.set_num_threads(1)
    examples = pickle.loads(Path(examples).read_bytes())
    for module in dict.fromkeys([*FIRST_USED_LATE, *(home for _, home, _ in examples if home)]):
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    found = {name: run_apart(name, home, statements) for name, home, statements in examples}
    Path(records).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
