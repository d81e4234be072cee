"""Sparse and quantized tensors, distributions."""


def add(table):
    torch, dev, g = table.torch, table.device, table.place

    # --- generalised tensors ------------------------------------------------------------------------
    def few(n, m, share):
        a = torch.rand(n, m, **g)
        return torch.where(a < share, a, 0 * a)

    for share, tag in ((0.01, "1pc"), (0.1, "10pc")):

        def make(share=share):
            a, b = few(4096, 4096, share).to_sparse_csr(), torch.rand(4096, 64, **g)
            return lambda: a @ b

        table[f"sparse/csr_mm_{tag}"] = make

        def make(share=share):
            a, b = few(4096, 4096, share).to_sparse(), torch.rand(4096, 64, **g)
            return lambda: torch.sparse.mm(a, b)

        table[f"sparse/coo_mm_{tag}"] = make

        def make(share=share):
            a = few(4096, 4096, share)
            return lambda: a.to_sparse()

        table[f"sparse/to_sparse_{tag}"] = make

        def make(share=share):
            a = few(4096, 4096, share).to_sparse_csr()
            return lambda: a.to_dense()

        table[f"sparse/csr_to_dense_{tag}"] = make

    @table.row("sparse/coalesce_1m")
    def _():
        i = torch.randint(0, 3000, (2, 1000000), **g)
        v = torch.rand(1000000, **g)
        return lambda: torch.sparse_coo_tensor(i, v, (3000, 3000)).coalesce()

    @table.row("sparse/mm_backward")
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

            table[f"quantized/{name}_4m"] = make

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

        table[f"distributions/{name}"] = make
