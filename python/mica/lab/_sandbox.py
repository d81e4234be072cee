"""A program of the reader's own, confined: no network, no files but a temporary folder, little time and memory.

The process confines itself before it reads the program: limits of the system (time, memory, sizes of files), a network of its
own without anybody in it and Landlock's rules for files where the kernel has them, and an audit hook, which refuses the same
things in words. The result is JSON on the standard output.
"""

import json
import os
import sys

_SECONDS, _BYTES, _FILE_BYTES = 5, 2 << 30, 16 << 20
_MOST_TENSORS, _MOST_VALUES, _MOST_WORDS = 200, 256, 20_000

# Events that reach out of the process. Opening files is checked separately.
_REFUSED = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "os.kill", "ctypes.",
    "os.chdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate", "shutil.", "pty.", "ftplib.", "http.", "smtplib.",
    "urllib.", "webbrowser.", "signal.pthread_kill", "sys.addaudithook", "mmap.", "resource.setrlimit",
)  # fmt: skip
_ON_FILES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.listdir", "os.scandir")


def _limit():
    import resource

    for what, amount in (
        (resource.RLIMIT_CPU, _SECONDS),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, _BYTES + _mapped()),
    ):
        resource.setrlimit(what, (amount, amount))


def _mapped():
    """The addresses that are taken already: libraries and stacks of threads are not the program's."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _leave_the_network():
    """Move this process to an empty network of its own, where the system allows that. Returns whether it does."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    user, network = 0x10000000, 0x40000000
    return libc.unshare(user | network) == 0 or libc.unshare(network) == 0


def _confine_files(folder, readable):
    """Landlock: reading below some folders, everything in one. Says whether the kernel has it."""
    import ctypes
    import struct

    libc = ctypes.CDLL(None, use_errno=True)
    create, add, restrict = 444, 445, 446  # the same numbers on x86-64 and aarch64
    everything, reading = (1 << 13) - 1, (1 << 0) | (1 << 2) | (1 << 3)  # execute, read a file, read a folder
    ruleset = libc.syscall(create, ctypes.c_char_p(struct.pack("Q", everything)), ctypes.c_size_t(8), 0)
    if ruleset < 0:
        return False
    for path, allowed in [(folder, everything & ~1), *((p, reading) for p in readable)]:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        libc.syscall(add, ruleset, 1, ctypes.c_char_p(struct.pack("=Qi", allowed, handle)), 0)
        os.close(handle)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    done = libc.syscall(restrict, ruleset, 0) == 0
    os.close(ruleset)
    return done


def _watch(folder, readable):
    """The audit hook: what the program may not do raises, in words."""
    inside = os.path.realpath(folder) + os.sep
    read = tuple(os.path.realpath(p) + os.sep for p in readable)

    def below(path, folders):
        if not isinstance(path, str | bytes | os.PathLike):
            return isinstance(path, int)  # a file that is open was checked when it was opened
        full = os.path.realpath(os.fsdecode(path))
        return (full + os.sep).startswith(folders)

    def hook(event, arguments):
        if event == "open":
            path, mode, flags = arguments
            writes = any(c in (mode or "") for c in "wax+") or (isinstance(flags, int) and flags & 3)
            if not below(path, inside if writes else (inside, *read)):
                raise PermissionError(f"the Lab's programs have no files outside of their own folder: {path}")
        elif event in _ON_FILES:
            if not below(arguments[0], (inside, *read) if event in ("os.listdir", "os.scandir") else inside):
                raise PermissionError(f"the Lab's programs have no files outside of their own folder: {arguments[0]}")
        elif event.startswith(_REFUSED):
            raise PermissionError(f"the Lab's programs may not do this: {event}")

    sys.addaudithook(hook)


class _Recorder:
    """Every tensor that an operation of the program makes, with its line."""

    def __init__(self, mica):
        self._mica, self.rows, self.more, self._storages = mica, [], 0, {}

    def mode(self):
        from mica.overrides import TorchFunctionMode

        recorder = self

        class Recording(TorchFunctionMode):
            _sees_operators = False

            def __torch_function__(self, func, types, args=(), kwargs=None):
                result = func(*args, **(kwargs or {}))
                for value in result if isinstance(result, tuple | list) else (result,):
                    if isinstance(value, recorder._mica.Tensor):
                        recorder.add(getattr(func, "__name__", "?"), value)
                return result

        return Recording()

    def add(self, name, tensor):
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != "<program>":
            frame = frame.f_back
        if frame is None:
            return
        if len(self.rows) >= _MOST_TENSORS:
            self.more += 1
            return
        self.rows.append((frame.f_lineno, name, tensor))

    def answer(self):
        mica, rows = self._mica, []
        with mica.no_grad():
            for line, name, tensor in self.rows:
                t = tensor.detach()
                row = {
                    "line": line,
                    "operation": name,
                    "shape": list(t.shape),
                    "dtype": str(t.dtype).rpartition(".")[2],
                }
                if t.layout == mica.strided and not t.is_quantized and not t.is_meta:
                    storage = t.untyped_storage()
                    key = storage.data_ptr()
                    row |= {"strides": list(t.stride()), "offset": t.storage_offset(), "contiguous": t.is_contiguous()}
                    row |= {"storage": self._storages.setdefault(key, len(self._storages)), "bytes": t.nbytes}
                    row |= {"elements": storage.nbytes() // max(1, t.element_size())}
                    row["shares"] = any(other.get("storage") == row["storage"] for other in rows)
                    row["values"] = [_plain(v) for v in t.reshape(-1)[:_MOST_VALUES].tolist()]
                row["requires_grad"] = tensor.requires_grad
                row["graph"] = _graph(tensor.grad_fn) if tensor.grad_fn is not None else None
                rows.append(row)
        return rows


def _graph(root):
    """The backward graph below a node as the page draws it: nodes and edges, the first sixty."""
    numbers, nodes, edges, waiting = {root: 0}, [], [], [root]
    while waiting and len(nodes) < 60:
        node = waiting.pop(0)
        nodes.append({"name": node.name(), "leaf": node.name().endswith("AccumulateGrad"), "step": None})
        for following, _ in node.next_functions:
            if following is not None:
                if following not in numbers:
                    numbers[following] = len(numbers)
                    waiting.append(following)
                edges.append({"from": numbers[node], "to": numbers[following]})
    return {"nodes": nodes, "edges": [e for e in edges if e["to"] < len(nodes)]}


def _plain(value):
    return value if isinstance(value, bool | int) or (isinstance(value, float) and abs(value) < 1e300) else str(value)


def _failure(error):
    """The error as the program's author knows it: the line, and the words."""
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<program>":
            line = step.tb_lineno
        step = step.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno
    return {"line": line, "kind": type(error).__name__, "message": str(error)[:4000]}


def _carry_out(source, mica, recorder):
    """Run the source; its error as a dict, or None."""
    try:
        code = compile(source, "<program>", "exec")
        with recorder.mode():
            exec(code, {"__name__": "__main__", "mica": mica, "torch": mica})
    except SystemExit:
        return None
    except BaseException as error:  # interrupts too: whatever is raised belongs to the program
        return _failure(error)
    return None


def main():
    """Read a program from the standard input, run it in the folder that is the second argument, write what it made."""
    import contextlib
    import io

    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import mica
    from mica._as_torch import alias

    alias.install()
    mica.set_num_threads(min(2, mica.get_num_threads()))
    (mica.ones(2) + 1).tolist(), mica.nn, mica.optim  # loaded now, since the confinement would refuse to load it later
    folder = sys.argv[2]
    os.chdir(folder)
    package = os.path.dirname(os.path.realpath(mica.__file__))
    libraries = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(mica.__file__)))), "lib")
    readable = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.abspath(mica.__file__)), package, libraries]
    readable += ["/usr", "/lib", "/lib64", "/proc/self", "/sys/devices/system/cpu", "/dev/null", "/dev/urandom"]
    kernel = {"network": _leave_the_network(), "files": _confine_files(folder, readable)}
    _limit()
    _watch(folder, readable)
    recorder, words = _Recorder(mica), io.StringIO()
    with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
        error = _carry_out(source, mica, recorder)
    report = {
        "tensors": recorder.answer(),
        "more": recorder.more,
        "printed": words.getvalue()[:_MOST_WORDS],
        "error": error,
        "kernel": kernel,
    }
    answer.write(json.dumps(report))
    answer.flush()
    os._exit(0)  # no code of the program runs at the end; the starter removes the folder
