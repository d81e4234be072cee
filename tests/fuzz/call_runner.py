"""Evaluates expressions that may be hostile, in processes that may die of it.

`python call_runner.py` reads a JSON list of (expression, dtype) from its standard input and prints the findings.

A case ends in a result or in a Python exception. Whatever else happens (a signal, no answer in time, an argument that a
failed call has changed, an error of the interpreter itself) is a finding.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

from sample_runner import Evaluator, tensors_of

SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")
SECONDS = 60.0 if SANITIZED else 20.0  # without an answer to one case
MEMORY = 2 << 30  # that a process may map beyond what it has at its start

# The status with which a sanitizer ends a process (make sanitize sets it): because of a finding, or because there was
# no memory, since its operator new cannot throw. Python's own statuses are others.
SANITIZERS_EXIT = 86

STATEFUL = ("Lazy", "spectral_norm", "functional_call")  # change before they compute, in torch as here


def contents(tensor):
    """Text that differs where elements do; NaNs are alike."""
    return repr(tensor.tolist()) if tensor.numel() <= 65536 else None


class Recorder(Evaluator):
    """Keeps what every tensor of a call held when it was made."""

    def __init__(self, library, dtype="float64", requires_grad=True):
        super().__init__(library, dtype=dtype, requires_grad=requires_grad)
        self.made = []

    def make(self, shape, draw, dtype):
        if not all(isinstance(s, int) for s in shape):
            raise TypeError(f"sizes are {shape}")
        count = 1
        for s in shape:
            count *= s
        t = super().make(shape, draw, dtype) if count <= 4096 else self.module.zeros(shape, dtype=dtype)
        self.made.append((t, contents(t)))
        return t

    def changed(self):
        return [t for t, before in self.made if contents(t) != before]


def plain(tensor):
    """Shape, dtype and elements of a tensor as JSON takes them."""
    t = tensor.detach()
    if t.device.type == "meta":
        return [list(t.shape), str(t.dtype), "meta"]
    if t.layout is not None and str(t.layout).endswith("sparse_coo"):
        t = t.to_dense()
    if t.numel() > 1 << 16:
        return [list(t.shape), str(t.dtype), "large"]
    if "float8" in str(t.dtype):
        t = t.float()
    values = t.reshape(-1).tolist()
    return [list(t.shape), str(tensor.dtype), [[v.real, v.imag] if isinstance(v, complex) else v for v in values]]


def everything(result):
    """The tensors of any result, those inside dicts, sequences and modules included."""
    if isinstance(result, dict):
        return [t for r in result.values() for t in everything(r)]
    if isinstance(result, list | tuple | set):
        return [t for r in result for t in everything(r)]
    if hasattr(result, "parameters") and hasattr(result, "state_dict"):
        return list(result.state_dict().values())
    return tensors_of(result)


def watch_modules(library, before):
    """A hook that keeps what the state of each called module was."""

    def hook(module, _):
        with contextlib.suppress(Exception):
            before.append((module, {k: contents(v) for k, v in module.state_dict().items()}))

    return library.nn.modules.module.register_module_forward_pre_hook(hook)


def evaluate(library, text, dtype="float64", requires_grad=True):
    """The outcome of one call and of the backward pass of all it returns."""
    recorder, modules = Recorder(library, dtype, requires_grad), []
    hook = watch_modules(library, modules)
    stage = "call"
    text = text.replace("torch.float64", f"torch.{dtype}").replace(".double()", f".to(torch.{dtype})")
    try:
        library.set_default_dtype(getattr(library, dtype))  # that of modules
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.manual_seed(1)
            result = recorder.run(text)
            tensors = everything(result)
            outcome = {"result": [plain(t) for t in tensors]}
            if not tensors:
                outcome["value"] = repr(result)[:300]
            stage = "backward"
            roots = [t for t in tensors if t.requires_grad and t.grad_fn is not None]
            if roots:
                library.manual_seed(2)
                library.autograd.backward(roots, [library.ones_like(t) for t in roots])
                outcome["grads"] = [None if t.grad is None else plain(t.grad) for t in recorder.leaves]
        return outcome
    except Exception as e:
        outcome = {"error": type(e).__name__, "message": str(e)[:300], "stage": stage}
        if isinstance(e, SystemError | UnicodeError | RecursionError) or "internal assert" in str(e).lower():
            outcome["finding"] = "".join(traceback.format_exception(e))[-1500:]
        if stage == "call":
            if recorder.changed():
                outcome["finding"] = "a failed call has changed an argument"
            for module, before in modules if not any(word in text for word in STATEFUL) else ():
                with contextlib.suppress(NotImplementedError):
                    if {k: contents(v) for k, v in module.state_dict().items()} != before:
                        outcome["finding"] = f"a failed call has changed {type(module).__name__}"
        return outcome
    finally:
        hook.remove()


def child(cases, work, pipe):
    """Works through the cases and writes a line per case."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(pipe, "w") as out:
        for index, case in cases:
            out.write(json.dumps({"index": index, "begins": True}) + "\n")
            out.flush()
            try:
                outcome = work(case)
            except BaseException as e:
                outcome = {"finding": "beside the call: " + "".join(traceback.format_exception(e))[-1500:]}
            out.write(json.dumps({"index": index, **outcome}) + "\n")
            out.flush()
    gc.collect()


def run_all(cases, work, batch=200, seconds=SECONDS):
    """Yields (case, outcome) for every case, from forked processes: one that dies costs its case alone."""
    waiting = list(enumerate(cases))
    while waiting:
        reading, writing = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            status = 1
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, 1)
                if not SANITIZED:
                    os.dup2(null, 2)
                child(waiting[:batch], work, os.dup(writing))
                status = 0
            except BaseException as e:
                # A failure outside of the cases (no memory for the text of an outcome, say) is reported in words, never
                # only as a status.
                text = f"{type(e).__name__}: {e}"[:500]
                os.write(writing, b"\n" + json.dumps({"runner": text}).encode() + b"\n")
            finally:
                os._exit(status)
        os.close(writing)
        begun, done, rest, hung, runner = None, 0, b"", False, None
        deadline = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                hung = True
                os.kill(pid, signal.SIGKILL)
                break
            data = os.read(reading, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if not line:
                    continue
                try:
                    outcome = json.loads(line)
                except ValueError:
                    continue  # the line that the runner could not end
                if "runner" in outcome:
                    runner = outcome["runner"]
                elif "begins" in outcome:
                    begun = outcome["index"]
                else:
                    begun, done = None, done + 1
                    yield cases[outcome["index"]], outcome
                deadline = time.monotonic() + seconds
        os.close(reading)
        _, status = os.waitpid(pid, 0)
        if begun is not None:
            code = os.waitstatus_to_exitcode(status)
            how = "no answer" if hung else f"died of {code}"
            if code == SANITIZERS_EXIT:
                how = "a sanitizer ended the process: its report is below"
            if runner is not None:
                how = f"the runner failed: {runner}"
            yield cases[begun], {"finding": how}
            done += 1
        elif done == 0:
            raise RuntimeError(f"a process did nothing: status {status}")
        waiting = waiting[done:]


def findings(cases):
    """What went wrong, as text, when every case ran in this library."""

    def work(case):
        outcome = evaluate(mica, *case)
        return {key: outcome[key] for key in ("finding",) if key in outcome}

    import mica

    return [f"{case}: {outcome['finding']}" for case, outcome in run_all(cases, work) if "finding" in outcome]


def findings_apart(cases):
    """The same, from an interpreter of its own: this one's threads are no concern of the forked ones."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "ops"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        input=json.dumps(list(cases)),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [*found, done.stderr[-4000:]] if found else []  # where a sanitizer says what it found


if __name__ == "__main__":
    found = findings([tuple(case) for case in json.load(sys.stdin)])
    json.dump(found, sys.stdout)
