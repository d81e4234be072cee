"""Products, decompositions, spectra, special functions."""


def add(table):
    torch, F, g, big = table.torch, table.F, table.place, table.big

    # --- linear algebra -------------------------------------------------------------------------
    for n in (64, 256, 1024) + ((4096, 8192) if big else (2048,)):
        for dt in ("float32", "bfloat16"):

            def make(n=n, dt=dt):
                a, b = (torch.rand(n, n, **g).to(getattr(torch, dt)) for _ in range(2))
                return lambda: a @ b

            table[f"matmul/{n}" if dt == "float32" else f"matmul_bf16/{n}"] = make

    for n in (4096, 8192) if big else ():

        def make(n=n):
            a, b = (torch.randn(n, n, **g).to(torch.float8_e4m3fn) for _ in range(2))
            one = torch.ones((), **g)
            return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        table[f"matmul_fp8/{n}"] = make

    @table.row("matmul/batched_attention_scores")
    def _():
        x, y = torch.rand(8, 12, 512, 64, **g), torch.rand(8, 12, 512, 64, **g)
        return lambda: x @ y.transpose(-1, -2)

    @table.row("matmul/einsum_bsh_bth")
    def _():
        x, y = torch.rand(16, 256, 512, **g), torch.rand(16, 300, 512, **g)
        return lambda: torch.einsum("bsh,bth->bst", x, y)

    @table.row("matmul/linear_gelu")
    def _():
        x, w, b = torch.rand(2048, 768, **g), torch.rand(3072, 768, **g), torch.rand(3072, **g)
        return lambda: F.gelu(F.linear(x, w, b))

    @table.row("matmul/mv_4096")
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

        table[f"matmul/train_{name}"] = make

    # --- linear algebra, spectra, special functions -----------------------------------------------
    def spd(*shape):
        a = torch.rand(*shape, **g)
        return a @ a.transpose(-1, -2) + shape[-1] * torch.eye(shape[-1], **g)

    @table.row("linalg/solve_512")
    def _():
        a, b = torch.rand(512, 512, **g) + 512 * torch.eye(512, **g), torch.rand(512, 8, **g)
        return lambda: torch.linalg.solve(a, b)

    for name, n in {"cholesky": 1024, "inv": 512, "qr": 512, "svd": 256, "eigh": 256, "eig": 128, "det": 512}.items():

        def make(name=name, n=n):
            a = spd(n, n)
            return lambda: getattr(torch.linalg, name)(a)

        table[f"linalg/{name}_{n}"] = make
    for name in ("cholesky", "inv", "det", "svd", "eigh", "qr"):  # many small ones, where a call each does not pay

        def make(name=name):
            a = spd(10000, 4, 4) if name in ("cholesky", "inv", "det") else spd(1000, 4, 4)
            return lambda: getattr(torch.linalg, name)(a)

        table[f"linalg_small/{name}"] = make

    @table.row("fft/rfft_1m")
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

        table[f"fft/{name}"] = make

    @table.row("fft/fft2_512")
    def _():
        a = torch.rand(8, 512, 512, **g) + 0j
        return lambda: torch.fft.fft2(a)

    @table.row("fft/stft")
    def _():
        a, w = torch.rand(4, 160000, **g), torch.hann_window(400, **g)
        return lambda: torch.stft(a, 400, 160, window=w, return_complex=True)

    for name in ["bessel_j0", "erfcx", "i0e", "zeta", "log_ndtr", "xlog1py"]:

        def make(name=name):
            a = torch.rand(1000000, **g) * 5 + 1.1
            f = getattr(torch.special, name)
            return lambda: f(a, a) if name in ("zeta", "xlog1py") else f(a)

        table[f"special/{name}_1000k"] = make
