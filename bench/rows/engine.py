"""Single operations: what a call costs, elements, layouts, reductions, sorting, indexing."""


def add(table):
    torch, nn, F = table.torch, table.nn, table.F
    dev, g, big, m = table.device, table.place, table.big, table.side

    # --- overhead: what one call costs when the data is tiny -----------------------------------
    table.elementwise("overhead/add_8", 8, lambda a, b: a + b, args=2)
    table.elementwise("overhead/add_inplace_8", 8, lambda a: a.add_(1e-9))
    table.elementwise("overhead/mul_scalar_8", 8, lambda a: a * 2.0)
    table.elementwise("overhead/sum_8", 8, lambda a: a.sum())
    table.elementwise("overhead/index_int", 8, lambda a: a[3])
    table.elementwise("overhead/slice", 8, lambda a: a[2:5])
    table.elementwise("overhead/view", 8, lambda a: a.view(2, 4))

    @table.row("overhead/transpose")
    def _():
        x = torch.rand(4, 4, **g)
        return lambda: x.transpose(0, 1)

    @table.row("overhead/zeros_2x3")
    def _():
        return lambda: torch.zeros(2, 3, **g)

    @table.row("overhead/matmul_8")
    def _():
        a, b = torch.rand(8, 8, **g), torch.rand(8, 8, **g)
        return lambda: a @ b

    @table.row("overhead/graph_10_ops_fwd_bwd")
    def _():
        w = torch.rand(8, **g).requires_grad_()

        def f():
            y = w
            for _ in range(5):
                y = (y * 1.01) + 0.01
            y.sum().backward()
            w.grad = None

        return f

    @table.row("overhead/linear_regression_epoch")
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
        table.elementwise(f"elementwise/add_{t}", n, lambda a, b: a + b, args=2)
        table.elementwise(f"elementwise/add_out_{t}", n, lambda a, b, o: torch.add(a, b, out=o), args=3)
        table.elementwise(f"elementwise/exp_{t}", n, lambda a: a.exp())
        table.elementwise(f"elementwise/sigmoid_{t}", n, lambda a: a.sigmoid())
        table.elementwise(f"elementwise/tanh_{t}", n, lambda a: a.tanh())
        table.elementwise(f"elementwise/gelu_{t}", n, lambda a: F.gelu(a))
        table.elementwise(f"elementwise/bf16_add_{t}", n, lambda a, b: a + b, "bfloat16", 2)
        table.elementwise(f"elementwise/cast_f32_bf16_{t}", n, lambda a: a.bfloat16())
        table.elementwise(f"elementwise/int32_add_{t}", n, lambda a, b: a + b, "int32", 2)
        table.elementwise(f"elementwise/where_{t}", n, lambda a, b: torch.where(a > b, a, b), args=2)
        table.elementwise(f"elementwise/chain_{t}", n, lambda a: ((a * 2 + 1).relu() * a).exp())

    @table.row("layout/broadcast_row")
    def _():
        a, b = torch.rand(m, m, **g), torch.rand(m, **g)
        return lambda: a + b

    @table.row("layout/broadcast_col")
    def _():
        a, b = torch.rand(m, m, **g), torch.rand(m, 1, **g)
        return lambda: a + b

    @table.row("layout/transpose_contiguous")
    def _():
        a = torch.rand(m, m, **g)
        return lambda: a.t().contiguous()

    @table.row("layout/add_transposed")
    def _():
        a, b = torch.rand(m, m, **g), torch.rand(m, m, **g)
        return lambda: a + b.t()

    @table.row("layout/permute_nhwc_contiguous")
    def _():
        a = torch.rand(16, 224, 224, 3, **g)
        return lambda: a.permute(0, 3, 1, 2).contiguous()

    @table.row("layout/cat")
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

        table[f"reduce/{name}"] = make

    @table.row("sort/sort_1m")
    def _():
        a = torch.rand(1_000_000, **g)
        return lambda: a.sort()

    @table.row("sort/topk_50_of_128k")
    def _():
        a = torch.rand(16, 128_000, **g)
        return lambda: a.topk(50)

    # --- indexing -------------------------------------------------------------------------------
    @table.row("index/embedding")
    def _():
        w, i = torch.rand(50_000, 768, **g), torch.randint(0, 50_000, (8, 512), **g)
        return lambda: F.embedding(i, w)

    @table.row("index/index_select")
    def _():
        w, i = torch.rand(m, m, **g), torch.randperm(m, **g)
        return lambda: w.index_select(0, i)

    @table.row("index/gather")
    def _():
        w, i = torch.rand(m, m, **g), torch.randint(0, m, (m, m), **g)
        return lambda: w.gather(1, i)

    @table.row("index/masked_select")
    def _():
        w = torch.rand(m, m, **g)
        k = w > 0.5
        return lambda: w[k]

    @table.row("index/index_add")
    def _():
        w, i, s = torch.zeros(m, 512, **g), torch.randint(0, m, (4 * m,), **g), torch.rand(4 * m, 512, **g)
        return lambda: w.index_add(0, i, s)
