#!/usr/bin/env python3
"""One list of workloads, run with any module that speaks torch's API.

    python3 workloads.py --lib torch --device cpu --threads 2 --out torch.json      one library
    python3 workloads.py --lib mica --versus torch --device cpu --threads 2         side by side, row by row
    python3 workloads.py --compare mica.json torch.json                             two saved runs

Side by side, each library lives in a process of its own and the two take turns on every row, so that a noisy
machine disturbs both alike; a row's figure is the better of its turns.

Each row is a median time in seconds. A row that the module cannot run is kept with its error, so
that a gap shows as a gap. On CUDA, a row is the time of a batch of calls up to a synchronize.
"""

import argparse
import importlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time


def rows(torch, dev, big):
    nn = getattr(torch, "nn", None)
    F = getattr(nn, "functional", None)
    g = {"device": dev}
    r = {}

    def row(name):
        def deco(make):
            r[name] = make
            return make

        return deco

    def elementwise(name, n, fn, dtype=None, args=1):
        def make():
            xs = [torch.rand(n, **g) + 0.5 for _ in range(args)]
            if dtype is not None:
                xs = [x.to(getattr(torch, dtype)) for x in xs]
            return lambda: fn(*xs)

        r[name] = make

    # --- overhead: what one call costs when the data is tiny -----------------------------------
    elementwise("overhead/add_8", 8, lambda a, b: a + b, args=2)
    elementwise("overhead/add_inplace_8", 8, lambda a: a.add_(1e-9))
    elementwise("overhead/mul_scalar_8", 8, lambda a: a * 2.0)
    elementwise("overhead/sum_8", 8, lambda a: a.sum())
    elementwise("overhead/index_int", 8, lambda a: a[3])
    elementwise("overhead/slice", 8, lambda a: a[2:5])
    elementwise("overhead/view", 8, lambda a: a.view(2, 4))

    @row("overhead/transpose")
    def _():
        x = torch.rand(4, 4, **g)
        return lambda: x.transpose(0, 1)

    @row("overhead/zeros_2x3")
    def _():
        return lambda: torch.zeros(2, 3, **g)

    @row("overhead/matmul_8")
    def _():
        a, b = torch.rand(8, 8, **g), torch.rand(8, 8, **g)
        return lambda: a @ b

    @row("overhead/graph_10_ops_fwd_bwd")
    def _():
        w = torch.rand(8, **g).requires_grad_()

        def f():
            y = w
            for _ in range(5):
                y = (y * 1.01) + 0.01
            y.sum().backward()
            w.grad = None

        return f

    @row("overhead/linear_regression_epoch")
    def _():
        X = torch.randn(100, 1, **g) * 10
        y = 2 * X + 1
        m = nn.Linear(1, 1).to(dev)
        crit = nn.MSELoss()
        opt = torch.optim.SGD(m.parameters(), lr=1e-4)

        def f():
            loss = crit(m(X), y)
            opt.zero_grad()
            loss.backward()
            opt.step()

        return f

    # --- elementwise ----------------------------------------------------------------------------
    for n in (10_000, 1_000_000, 64_000_000 if big else 16_000_000):
        t = f"{n // 1000}k"
        elementwise(f"elementwise/add_{t}", n, lambda a, b: a + b, args=2)
        elementwise(f"elementwise/add_out_{t}", n, lambda a, b, o: torch.add(a, b, out=o), args=3)
        elementwise(f"elementwise/exp_{t}", n, lambda a: a.exp())
        elementwise(f"elementwise/sigmoid_{t}", n, lambda a: a.sigmoid())
        elementwise(f"elementwise/tanh_{t}", n, lambda a: a.tanh())
        elementwise(f"elementwise/gelu_{t}", n, lambda a: F.gelu(a))
        elementwise(f"elementwise/bf16_add_{t}", n, lambda a, b: a + b, "bfloat16", 2)
        elementwise(f"elementwise/cast_f32_bf16_{t}", n, lambda a: a.bfloat16())
        elementwise(f"elementwise/int32_add_{t}", n, lambda a, b: a + b, "int32", 2)
        elementwise(f"elementwise/where_{t}", n, lambda a, b: torch.where(a > b, a, b), args=2)
        elementwise(f"elementwise/chain_{t}", n, lambda a: ((a * 2 + 1).relu() * a).exp())
    m = 8192 if big else 2048

    @row("layout/broadcast_row")
    def _():
        a, b = torch.rand(m, m, **g), torch.rand(m, **g)
        return lambda: a + b

    @row("layout/broadcast_col")
    def _():
        a, b = torch.rand(m, m, **g), torch.rand(m, 1, **g)
        return lambda: a + b

    @row("layout/transpose_contiguous")
    def _():
        a = torch.rand(m, m, **g)
        return lambda: a.t().contiguous()

    @row("layout/add_transposed")
    def _():
        a, b = torch.rand(m, m, **g), torch.rand(m, m, **g)
        return lambda: a + b.t()

    @row("layout/permute_nhwc_contiguous")
    def _():
        a = torch.rand(16, 224, 224, 3, **g)
        return lambda: a.permute(0, 3, 1, 2).contiguous()

    @row("layout/cat")
    def _():
        a = [torch.rand(m // 8, m, **g) for _ in range(8)]
        return lambda: torch.cat(a, 0)

    # --- reductions -----------------------------------------------------------------------------
    for name, fn in {
        "sum": lambda a: a.sum(),
        "sum_dim0": lambda a: a.sum(0),
        "sum_dim1": lambda a: a.sum(1),
        "mean_dim1": lambda a: a.mean(1),
        "max": lambda a: a.max(),
        "argmax_dim1": lambda a: a.argmax(1),
        "var_dim1": lambda a: a.var(1),
        "norm": lambda a: a.norm(),
        "cumsum_dim1": lambda a: a.cumsum(1),
        "softmax": lambda a: torch.softmax(a, 1),
        "log_softmax": lambda a: torch.log_softmax(a, 1),
        "logsumexp": lambda a: torch.logsumexp(a, 1),
        "layer_norm": lambda a: F.layer_norm(a, (a.shape[1],)),
    }.items():

        def make(fn=fn):
            a = torch.rand(m, m, **g)
            return lambda: fn(a)

        r[f"reduce/{name}"] = make

    @row("sort/sort_1m")
    def _():
        a = torch.rand(1_000_000, **g)
        return lambda: a.sort()

    @row("sort/topk_50_of_128k")
    def _():
        a = torch.rand(16, 128_000, **g)
        return lambda: a.topk(50)

    # --- indexing -------------------------------------------------------------------------------
    @row("index/embedding")
    def _():
        w, i = torch.rand(50_000, 768, **g), torch.randint(0, 50_000, (8, 512), **g)
        return lambda: F.embedding(i, w)

    @row("index/index_select")
    def _():
        w, i = torch.rand(m, m, **g), torch.randperm(m, **g)
        return lambda: w.index_select(0, i)

    @row("index/gather")
    def _():
        w, i = torch.rand(m, m, **g), torch.randint(0, m, (m, m), **g)
        return lambda: w.gather(1, i)

    @row("index/masked_select")
    def _():
        w = torch.rand(m, m, **g)
        k = w > 0.5
        return lambda: w[k]

    @row("index/index_add")
    def _():
        w, i, s = torch.zeros(m, 512, **g), torch.randint(0, m, (4 * m,), **g), torch.rand(4 * m, 512, **g)
        return lambda: w.index_add(0, i, s)

    # --- linear algebra -------------------------------------------------------------------------
    for n in (64, 256, 1024) + ((4096, 8192) if big else (2048,)):
        for dt in ("float32", "bfloat16"):

            def make(n=n, dt=dt):
                a, b = (torch.rand(n, n, **g).to(getattr(torch, dt)) for _ in range(2))
                return lambda: a @ b

            r[f"matmul/{n}" if dt == "float32" else f"matmul_bf16/{n}"] = make

    @row("matmul/batched_attention_scores")
    def _():
        x, y = torch.rand(8, 12, 512, 64, **g), torch.rand(8, 12, 512, 64, **g)
        return lambda: x @ y.transpose(-1, -2)

    @row("matmul/einsum_bsh_bth")
    def _():
        x, y = torch.rand(16, 256, 512, **g), torch.rand(16, 300, 512, **g)
        return lambda: torch.einsum("bsh,bth->bst", x, y)

    @row("matmul/linear_gelu")
    def _():
        x, w, b = torch.rand(2048, 768, **g), torch.rand(3072, 768, **g), torch.rand(3072, **g)
        return lambda: F.gelu(F.linear(x, w, b))

    @row("matmul/mv_4096")
    def _():
        a, b = torch.rand(4096, 4096, **g), torch.rand(4096, **g)
        return lambda: a @ b

    # Products as a training step of a small Transformer makes them: forward, and both gradients, through transposed views.
    for name, (m, k, n, ta, tb) in {
        "forward": (640, 192, 768, 0, 1),
        "of_input": (640, 768, 192, 0, 0),
        "of_weight": (768, 640, 192, 1, 0),
    }.items():

        def make(m=m, k=k, n=n, ta=ta, tb=tb):
            a = torch.rand(k, m, **g).t() if ta else torch.rand(m, k, **g)
            b = torch.rand(n, k, **g).t() if tb else torch.rand(k, n, **g)
            return lambda: a @ b

        r[f"matmul/train_{name}"] = make

    # --- linear algebra, spectra, special functions -----------------------------------------------
    def spd(*shape):
        a = torch.rand(*shape, **g)
        return a @ a.transpose(-1, -2) + shape[-1] * torch.eye(shape[-1], **g)

    @row("linalg/solve_512")
    def _():
        a, b = torch.rand(512, 512, **g) + 512 * torch.eye(512, **g), torch.rand(512, 8, **g)
        return lambda: torch.linalg.solve(a, b)

    for name, n in {"cholesky": 1024, "inv": 512, "qr": 512, "svd": 256, "eigh": 256, "eig": 128, "det": 512}.items():

        def make(name=name, n=n):
            a = spd(n, n)
            return lambda: getattr(torch.linalg, name)(a)

        r[f"linalg/{name}_{n}"] = make
    for name in ("cholesky", "inv", "det", "svd", "eigh", "qr"):  # many small ones, where a call each does not pay

        def make(name=name):
            a = spd(10000, 4, 4) if name in ("cholesky", "inv", "det") else spd(1000, 4, 4)
            return lambda: getattr(torch.linalg, name)(a)

        r[f"linalg_small/{name}"] = make

    @row("fft/rfft_1m")
    def _():
        a = torch.rand(1 << 20, **g)
        return lambda: torch.fft.rfft(a)

    for name, shape in {
        "batch_4096x1024": (4096, 1024),
        "batch_1000x360": (1000, 360),
        "prime_100x1009": (100, 1009),
    }.items():

        def make(shape=shape):
            a = torch.rand(*shape, **g) + 0j
            return lambda: torch.fft.fft(a)

        r[f"fft/{name}"] = make

    @row("fft/fft2_512")
    def _():
        a = torch.rand(8, 512, 512, **g) + 0j
        return lambda: torch.fft.fft2(a)

    @row("fft/stft")
    def _():
        a, w = torch.rand(4, 160000, **g), torch.hann_window(400, **g)
        return lambda: torch.stft(a, 400, 160, window=w, return_complex=True)

    for name in ["bessel_j0", "erfcx", "i0e", "zeta", "log_ndtr", "xlog1py"]:

        def make(name=name):
            a = torch.rand(1000000, **g) * 5 + 1.1
            f = getattr(torch.special, name)
            return lambda: f(a, a) if name in ("zeta", "xlog1py") else f(a)

        r[f"special/{name}_1000k"] = make

    # --- generalised tensors ------------------------------------------------------------------------
    def few(n, m, share):
        a = torch.rand(n, m, **g)
        return torch.where(a < share, a, 0 * a)

    for share, tag in ((0.01, "1pc"), (0.1, "10pc")):

        def make(share=share):
            a, b = few(4096, 4096, share).to_sparse_csr(), torch.rand(4096, 64, **g)
            return lambda: a @ b

        r[f"sparse/csr_mm_{tag}"] = make

        def make(share=share):
            a, b = few(4096, 4096, share).to_sparse(), torch.rand(4096, 64, **g)
            return lambda: torch.sparse.mm(a, b)

        r[f"sparse/coo_mm_{tag}"] = make

        def make(share=share):
            a = few(4096, 4096, share)
            return lambda: a.to_sparse()

        r[f"sparse/to_sparse_{tag}"] = make

        def make(share=share):
            a = few(4096, 4096, share).to_sparse_csr()
            return lambda: a.to_dense()

        r[f"sparse/csr_to_dense_{tag}"] = make

    @row("sparse/coalesce_1m")
    def _():
        i = torch.randint(0, 3000, (2, 1000000), **g)
        v = torch.rand(1000000, **g)
        return lambda: torch.sparse_coo_tensor(i, v, (3000, 3000)).coalesce()

    @row("sparse/mm_backward")
    def _():
        a, b = few(2048, 2048, 0.01).to_sparse().requires_grad_(), torch.rand(2048, 64, **g).requires_grad_()
        return lambda: torch.sparse.mm(a, b).sum().backward()

    if dev == "cpu":
        for name, f in {
            "quantize": lambda x, q: torch.quantize_per_tensor(x, 0.05, 10, torch.qint8),
            "dequantize": lambda x, q: q.dequantize(),
            "per_channel": lambda x, q: torch.quantize_per_channel(
                x, torch.full((1024,), 0.05), torch.zeros(1024, dtype=torch.int64), 0, torch.qint8
            ),
        }.items():

            def make(f=f):
                x = torch.randn(1024, 4096, **g)
                q = torch.quantize_per_tensor(x, 0.05, 10, torch.qint8)
                return lambda: f(x, q)

            r[f"quantized/{name}_4m"] = make

    for name in ["Normal", "Categorical", "Dirichlet", "MultivariateNormal"]:

        def make(name=name):
            D, n = torch.distributions, 10000
            one = torch.rand(n, 8, **g) + 0.5
            d = {
                "Normal": lambda: D.Normal(one, one),
                "Categorical": lambda: D.Categorical(one),
                "Dirichlet": lambda: D.Dirichlet(one),
                "MultivariateNormal": lambda: D.MultivariateNormal(one, torch.eye(8, **g).expand(n, 8, 8).contiguous()),
            }[name]()
            return lambda: d.log_prob(d.sample())

        r[f"distributions/{name}"] = make

    @row("attention/sdpa_causal")
    def _():
        dt = torch.bfloat16 if dev != "cpu" else torch.float32
        q, k, v = (torch.rand(4, 12, 1024, 64, **g).to(dt) for _ in range(3))
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)

    # --- convolution ----------------------------------------------------------------------------
    for name, (n, c, h, k, f, s, p) in {
        "resnet_stem": (8, 3, 224, 7, 64, 2, 3),
        "resnet_3x3": (8, 64, 56, 3, 64, 1, 1),
        "resnet_1x1": (8, 256, 14, 1, 1024, 1, 0),
    }.items():

        def make(n=n, c=c, h=h, k=k, f=f, s=s, p=p):
            x, w = torch.rand(n, c, h, h, **g), torch.rand(f, c, k, k, **g)
            return lambda: F.conv2d(x, w, stride=s, padding=p)

        r[f"conv/{name}"] = make

        def make(n=n, c=c, h=h, k=k, f=f, s=s, p=p):
            x, w = torch.rand(n, c, h, h, **g), torch.rand(f, c, k, k, **g)
            x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
            return lambda: F.conv2d(x, w, stride=s, padding=p)

        r[f"conv/{name}_channels_last"] = make

    @row("conv/max_pool")
    def _():
        x = torch.rand(8, 64, 112, 112, **g)
        return lambda: F.max_pool2d(x, 3, 2, 1)

    # --- training steps -------------------------------------------------------------------------
    def step(model, x, y, loss_fn, opt):
        def f():
            opt.zero_grad()
            loss_fn(model(x), y).backward()
            opt.step()

        return f

    @row("train/mlp_784_512_10_adam")
    def _():
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(
            dev
        )
        return step(
            model,
            torch.rand(128, 784, **g),
            torch.randint(0, 10, (128,), **g),
            nn.CrossEntropyLoss(),
            torch.optim.Adam(model.parameters(), lr=1e-3),
        )

    @row("train/convnet_mnist_sgd")
    def _():
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(9216, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        ).to(dev)
        return step(
            model,
            torch.rand(64, 1, 28, 28, **g),
            torch.randint(0, 10, (64,), **g),
            nn.CrossEntropyLoss(),
            torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9),
        )

    def gpt(vocab, d, h, layers, b, t, amp):
        class Block(nn.Module):
            def __init__(self, d, h):
                super().__init__()
                self.h, self.d = h, d
                self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
                self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
                self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

            def forward(self, x):
                b, t, d = x.shape
                q, k, v = self.qkv(self.ln1(x)).split(d, dim=2)
                q, k, v = (z.view(b, t, self.h, d // self.h).transpose(1, 2) for z in (q, k, v))
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.proj(a.transpose(1, 2).contiguous().view(b, t, d))
                return x + self.down(F.gelu(self.up(self.ln2(x))))

        class GPT(nn.Module):
            def __init__(self, vocab, d, h, layers, t):
                super().__init__()
                self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(t, d)
                self.blocks = nn.Sequential(*[Block(d, h) for _ in range(layers)])
                self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
                self.register_buffer("p", torch.arange(t))

            def forward(self, i):
                return self.head(self.ln(self.blocks(self.tok(i) + self.pos(self.p[: i.shape[1]]))))

        model = GPT(vocab, d, h, layers, t).to(dev)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
        i = torch.randint(0, vocab, (b, t), **g)

        def f():
            opt.zero_grad()
            if amp:
                with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                    out = model(i)
                    loss = F.cross_entropy(out.view(-1, vocab), i.view(-1))
            else:
                loss = F.cross_entropy(model(i).view(-1, vocab), i.view(-1))
            loss.backward()
            opt.step()

        return f

    r["train/gpt_tiny_f32"] = lambda: gpt(1024, 128, 4, 2, 4, 128, False)
    if big:
        r["train/gpt2_small_bf16_amp"] = lambda: gpt(50304, 768, 12, 12, 8, 1024, True)
        r["train/gpt2_small_f32"] = lambda: gpt(50304, 768, 12, 12, 4, 1024, False)

    @row("optim/adam_10m")
    def _():
        ps = [torch.rand(1000, 1000, **g).requires_grad_() for _ in range(10)]
        for p in ps:
            p.grad = torch.rand(1000, 1000, **g)
        opt = torch.optim.Adam(ps, lr=1e-3)
        return opt.step

    return r


def measure(torch, dev, make, budget=1.0, batch_us=200):
    f = make()
    sync = torch.cuda.synchronize if dev != "cpu" else (lambda: None)
    t = time.perf_counter()
    f()
    sync()
    one = time.perf_counter() - t
    if one > 5:
        return one
    for _ in range(2):
        f()
    sync()
    t = time.perf_counter()
    f()
    sync()
    one = time.perf_counter() - t
    k = max(1, int(batch_us * 1e-6 / max(one, 1e-7)))
    ts, end = [], time.perf_counter() + budget
    while len(ts) < 5 or (time.perf_counter() < end and len(ts) < 200):
        t = time.perf_counter()
        for _ in range(k):
            f()
        sync()
        ts.append((time.perf_counter() - t) / k)
    return statistics.median(ts)


def load(lib, threads):
    t = time.perf_counter()
    torch = importlib.import_module(lib)
    seconds = time.perf_counter() - t
    if lib != "torch":
        sys.modules["torch"] = torch
    if threads:
        torch.set_num_threads(threads)
    return torch, {"_import_s": seconds, "_version": getattr(torch, "__version__", "?")}


def one_row(torch, device, make, budget):
    try:
        return measure(torch, device, make, budget)
    except Exception as e:
        return f"{type(e).__name__}: {e}"[:160]


def serve(a):
    """Answer row names on standard input with their times, one JSON value a line."""
    say, sys.stdout = sys.stdout, sys.stderr
    torch, facts = load(a.lib, a.threads)
    table = rows(torch, a.device, a.device != "cpu")
    print(json.dumps([facts, list(table)]), file=say, flush=True)
    for line in sys.stdin:
        print(json.dumps(one_row(torch, a.device, table[line.strip()], a.budget)), file=say, flush=True)


class Worker:
    def __init__(self, lib, a):
        self.cmd = [
            sys.executable,
            __file__,
            "--serve",
            "--lib",
            lib,
            "--device",
            a.device,
            "--threads",
            str(a.threads),
            "--budget",
            str(a.budget),
        ]
        self.start()

    def start(self):
        self.p = subprocess.Popen(self.cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts, self.names = json.loads(self.p.stdout.readline())

    def row(self, name):
        print(name, file=self.p.stdin, flush=True)
        line = self.p.stdout.readline()
        if not line:
            code = self.p.wait()
            self.start()
            return f"the process ended with {code}"
        return json.loads(line)


def versus(a):
    ws = {lib: Worker(lib, a) for lib in (a.lib, a.versus)}
    res = {lib: dict(w.facts) for lib, w in ws.items()}
    for name in ws[a.versus].names:
        if a.only and not re.search(a.only, name):
            continue
        for _turn in range(a.turns):
            for lib, w in ws.items():
                t = w.row(name)
                old = res[lib].get(name)
                res[lib][name] = min(t, old) if isinstance(t, float) and isinstance(old, float) else t
                if isinstance(t, str) or t > 5:
                    break
        print_row(name, *(res[lib].setdefault(name, "not run") for lib in (a.lib, a.versus)))
    for lib in ws:
        if a.out:
            pathlib.Path(f"{a.out}.{lib}.json").write_text(json.dumps(res[lib], indent=1))
    summary(res[a.lib], res[a.versus])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lib", default="torch")
    p.add_argument("--versus")
    p.add_argument("--device", default="cpu")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--out")
    p.add_argument("--only", default="", help="a regular expression")
    p.add_argument("--budget", type=float, default=0.3)
    p.add_argument("--turns", type=int, default=2)
    p.add_argument("--compare", nargs=2)
    p.add_argument("--serve", action="store_true")
    a = p.parse_args()
    if a.serve:
        return serve(a)
    if a.compare:
        mine, theirs = (json.loads(pathlib.Path(f).read_text()) for f in a.compare)
        for name in theirs:
            if not name.startswith("_"):
                print_row(name, mine.get(name, "missing"), theirs[name])
        return summary(mine, theirs)
    if a.versus:
        return versus(a)
    torch, out = load(a.lib, a.threads)
    for name, make in rows(torch, a.device, a.device != "cpu").items():
        if a.only and not re.search(a.only, name):
            continue
        out[name] = one_row(torch, a.device, make, a.budget)
        print(
            f"{name:45s} " + (f"{out[name] * 1e6:12.2f} us" if isinstance(out[name], float) else f"FAILS {out[name]}"),
            flush=True,
        )
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(out, indent=1))


def print_row(name, x, y):
    if isinstance(x, str) or isinstance(y, str):
        print(f"{name:45s} {x if isinstance(x, str) else 'peer: ' + y}", flush=True)
    else:
        print(f"{name:45s} {x * 1e6:12.2f} us  {y * 1e6:12.2f} us  peer/mine {y / x:6.2f}x", flush=True)


def summary(mine, theirs):
    groups = {}
    for k, y in theirs.items():
        if not k.startswith("_"):
            x = mine.get(k, "missing")
            groups.setdefault(k.split("/")[0], []).append(None if isinstance(x, str) or isinstance(y, str) else y / x)
    print("\ngroup (peer time / mine, geometric mean; higher is better for mine)")
    for g, v in groups.items():
        ok = [x for x in v if x is not None]
        print(
            f"  {g:14s} {statistics.geometric_mean(ok) if ok else float('nan'):6.2f}x  worst {min(ok, default=float('nan')):6.2f}x  runs {len(ok)}/{len(v)}"
        )


if __name__ == "__main__":
    main()
