"""A tour of Mica in the terminal: every number shown is computed as it is printed."""

import os
import sys
import time

import mica

_WIDTH = 78


class Paint:
    """Colours for a terminal; plain text for anything else."""

    def __init__(self, stream):
        self._on = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def __call__(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self._on else text

    def bold(self, text):
        return self("1", text)

    def dim(self, text):
        return self("2", text)

    def hot(self, text):
        return self("1;36", text)

    def warm(self, text):
        return self("1;33", text)

    def good(self, text):
        return self("1;32", text)


paint = Paint(sys.stdout)


def title(number, text):
    head = f" {number}  {text} "
    print("\n" + paint.bold(head) + paint.dim("─" * (_WIDTH - len(head))))


def code(line, result=""):
    print(f"   {paint.dim('>>>')} {line}" + (f"   {paint.dim('#')} {result}" if result else ""))


def facts(tensor):
    users = tensor.untyped_storage()._use_count() - 1  # one reference is the storage's own object
    return (
        f"shape {tuple(tensor.shape)}  strides {tensor.stride()}  offset {tensor.storage_offset()}  "
        f"storage {tensor.untyped_storage().nbytes()} bytes, {users} tensor{'s' * (users != 1)}"
    )


def addresses(tensor):
    """The places in the storage that a tensor reaches."""
    reached = [tensor.storage_offset()]
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        reached = [place + i * stride for place in reached for i in range(size)]
    return reached


def tape(tensor):
    """The storage as a row of cells, those that the tensor reaches lit."""
    reached = set(addresses(tensor))
    cells = [f"{value:^4g}" for value in tensor._typed_storage().tolist()]
    lit = [paint.hot(cell) if i in reached else paint.dim(cell) for i, cell in enumerate(cells)]
    marks = " ".join("▔▔▔▔" if i in reached else "    " for i in range(len(cells)))
    print("     " + paint.dim("│") + paint.dim("│").join(lit) + paint.dim("│"))
    print("      " + paint.hot(marks.rstrip()))


def anatomy():
    title(1, "A tensor is a view of flat memory")
    x = mica.tensor([[0.0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
    code("x = mica.tensor([[0., 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])")
    print("     " + facts(x))
    tape(x)
    column = x[:, 1]
    code("x[:, 1]", "every fourth number, from the second on")
    print("     " + facts(column))
    tape(column)
    row = x.t()[2]
    code("x.t()[2]", "transposing moves no number: the strides change places")
    print("     " + facts(row))
    tape(row)


def views_and_copies():
    title(2, "A view and a copy, told apart")
    x = mica.zeros(2, 3)
    view, copy = x.view(3, 2), x.t().reshape(6)
    code("x = mica.zeros(2, 3); view = x.view(3, 2); copy = x.t().reshape(6)")
    x.fill_(7)
    code("x.fill_(7)")
    for name, tensor in (("view", view), ("copy", copy)):
        same = tensor.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        verdict = paint.good("same storage") if same else paint.warm("storage of its own")
        print(f"     {name} → {tensor.reshape(-1).tolist()}  {verdict}")


def grid(tensor, lit):
    rows = tensor.reshape(-1, tensor.shape[-1]).tolist()
    return ["".join(lit(f"{int(value):4d}") for value in row) for row in rows]


def broadcasting():
    title(3, "Broadcasting: a dimension of size 1 stretches, with stride 0")
    column, row = mica.tensor([[10], [20], [30]]), mica.tensor([[1, 2, 3, 4]])
    total = column + row
    left, top = grid(column, paint.hot), grid(row, paint.warm)
    code("column + row", f"{tuple(column.shape)} + {tuple(row.shape)} → {tuple(total.shape)}")
    print("          " + top[0])
    print("          " + paint.dim("─" * 16))
    for name, sums in zip(left, grid(total, lambda text: text), strict=True):
        print(f"     {name} {paint.dim('│')}{sums}")
    stretched = column.expand(3, 4)
    print(f"     column seen as {tuple(stretched.shape)} has strides {stretched.stride()}: nothing was copied")


def gradients():
    title(4, "A gradient")
    x = mica.tensor(2.0, requires_grad=True)
    y = (x**2 + 5) * 3
    y.backward()
    code("x = mica.tensor(2., requires_grad=True)")
    code("y = (x**2 + 5) * 3; y.backward()")
    print(f"     y = {y.item():g}    dy/dx = {paint.good(f'{x.grad.item():g}')} = 6x    made by {y.grad_fn.name()}")
    w = mica.zeros(2, requires_grad=True)
    points = mica.linspace(-1, 1, 50)
    target = 3 * points - 1
    for step in range(61):
        loss = ((w[0] * points + w[1] - target) ** 2).mean()
        if step % 20 == 0:
            slope, offset = w.tolist()
            print(f"     step {step:3d}   loss {loss.item():8.5f}   line {slope:6.3f} x {offset:+6.3f}")
        loss.backward()
        with mica.no_grad():
            w -= 0.4 * w.grad
            w.grad = None


def fastest(function, budget=0.2):
    """The least time of a call, in seconds."""
    function()
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < budget:
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return best


def readable(seconds):
    for unit, scale in (("s ", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:7.2f} {unit}"
    return f"{seconds * 1e9:7.0f} ns"


def timings():
    title(5, "Beside NumPy")
    try:
        import numpy as np
    except ImportError:
        print("     NumPy is not installed here; `pip install numpy` to see both side by side.")
        return
    rows = []
    a, b = mica.rand(1_000_000), mica.rand(1_000_000)
    m, n = mica.rand(512, 512), mica.rand(512, 512)
    small = mica.rand(4)
    an, bn, mn, nn, smalln = a.numpy(), b.numpy(), m.numpy(), n.numpy(), small.numpy()
    rows.append(("a + b, 1 million", lambda: a + b, lambda: an + bn))
    rows.append(("exp(a), 1 million", lambda: mica.exp(a), lambda: np.exp(an)))
    rows.append(("a.sum(), 1 million", lambda: a.sum(), lambda: an.sum()))
    rows.append(("argsort(a), 1 million", lambda: mica.argsort(a), lambda: np.argsort(an)))
    rows.append(("m @ n, 512 by 512", lambda: m @ n, lambda: mn @ nn))
    rows.append(("small + small, 4", lambda: small + small, lambda: smalln + smalln))
    print(paint.dim(f"     {'':22s}{'mica':>12s}{'numpy':>14s}"))
    for name, ours, theirs in rows:
        mine, other = fastest(ours), fastest(theirs)
        ratio = other / mine
        shown = f"{ratio:6.1f} x"
        print(
            f"     {name:22s}{readable(mine):>12s}{readable(other):>14s}  {paint.good(shown) if ratio >= 1 else shown}"
        )
    print(
        paint.dim(f"     {mica.get_num_threads()} threads; the least of many runs; float32; the same memory for both")
    )


def main():
    print(paint.bold("Mica") + f" {mica.__version__} — tensors you can see through")
    for part in (anatomy, views_and_copies, broadcasting, gradients, timings):
        part()
    print("\n   " + paint.dim("Next:") + " `import mica as torch`, or `mica run your_torch_script.py` as it is")
