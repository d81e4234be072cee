"""Attention, convolutions, training steps, an optimizer."""


def add(table):
    torch, nn, F = table.torch, table.nn, table.F
    dev, g, big = table.device, table.place, table.big

    @table.row("attention/sdpa_causal")
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

        table[f"conv/{name}"] = make

        def make(n=n, c=c, h=h, k=k, f=f, s=s, p=p):
            x, w = torch.rand(n, c, h, h, **g), torch.rand(f, c, k, k, **g)
            x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
            return lambda: F.conv2d(x, w, stride=s, padding=p)

        table[f"conv/{name}_channels_last"] = make

    @table.row("conv/max_pool")
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

    def mlp(**options):
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(
            dev
        )
        return step(
            model,
            torch.rand(128, 784, **g),
            torch.randint(0, 10, (128,), **g),
            nn.CrossEntropyLoss(),
            torch.optim.Adam(model.parameters(), lr=1e-3, **options),
        )

    table["train/mlp_784_512_10_adam"] = mlp
    if big:

        @table.row("train/mlp_784_512_10_adam_graph")
        def _():
            f, side, graph = mlp(capturable=True), torch.cuda.Stream(), torch.cuda.CUDAGraph()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # what is made at first use must not be made while the graph is captured
                for _ in range(3):
                    f()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                f()
            return graph.replay

    @table.row("train/convnet_mnist_sgd")
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

    def gpt(vocab, d, h, layers, b, t, amp, compiled=False):
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
        model = torch.compile(model) if compiled else model
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

        for _ in range(3 if compiled else 0):
            f()
        return f

    table["train/gpt_tiny_f32"] = lambda: gpt(1024, 128, 4, 2, 4, 128, False)
    table["compile/gpt_tiny_train"] = lambda: gpt(1024, 128, 4, 2, 4, 128, False, compiled=True)
    if big:
        table["train/gpt2_small_bf16_amp"] = lambda: gpt(50304, 768, 12, 12, 8, 1024, True)
        table["compile/gpt2_small_bf16_amp"] = lambda: gpt(50304, 768, 12, 12, 8, 1024, True, compiled=True)
        table["train/gpt2_small_f32"] = lambda: gpt(50304, 768, 12, 12, 4, 1024, False)

    @table.row("optim/adam_10m")
    def _():
        ps = [torch.rand(1000, 1000, **g).requires_grad_() for _ in range(10)]
        for p in ps:
            p.grad = torch.rand(1000, 1000, **g)
        opt = torch.optim.Adam(ps, lr=1e-3)
        return opt.step
