"""Functions and models through torch.compile, compiled before the clock starts."""


def add(table):
    torch, nn, dev, g = table.torch, table.nn, table.device, table.place
    if not hasattr(torch, "compile"):
        return

    def compiled(name, make):
        def build():
            function, arguments = make()
            function = torch.compile(function)
            for _ in range(3):
                function(*arguments)
            return lambda: function(*arguments)

        table[f"compile/{name}"] = build

    def chain(x, y):
        return torch.sigmoid((x * 2 + 1).sin() * y - x / 3).mul(y).add(x).clamp(-1, 1)

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def layer_norm(x, weight, bias):
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias

    def norm_and_turn(x, weight, cos, sin):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def scores(q, mask):
        return torch.softmax((q * 0.125).masked_fill(mask, float("-inf")), -1)

    def adam(parameter, grad, first, second):
        first.mul_(0.9).add_(grad, alpha=0.1)
        second.mul_(0.999).addcmul_(grad, grad, value=0.001)
        parameter.sub_(1e-3 * first / (second.sqrt() + 1e-8))
        return parameter

    for n, label in ((10_000, "10k"), (1_000_000, "1000k")) + (((64_000_000, "64000k"),) if table.big else ()):
        compiled(f"chain_8_{label}", lambda n=n: (chain, [torch.rand(n, **g), torch.rand(n, **g)]))
    compiled("gelu_by_hand_1000k", lambda: (gelu, [torch.randn(1_000_000, **g)]))
    compiled(
        "layer_norm_by_hand",
        lambda: (layer_norm, [torch.randn(2048, 1024, **g), torch.rand(1024, **g), torch.rand(1024, **g)]),
    )
    compiled(
        "rms_norm_rope",
        lambda: (
            norm_and_turn,
            [torch.randn(8, 512, 16, 64, **g), torch.rand(64, **g)] + [torch.rand(512, 1, 32, **g) for _ in range(2)],
        ),
    )
    compiled(
        "masked_softmax",
        lambda: (scores, [torch.randn(16, 512, 512, **g), torch.ones(512, 512, dtype=torch.bool, **g).triu(1)]),
    )
    compiled("adam_by_hand_1000k", lambda: (adam, [torch.rand(1_000_000, **g) for _ in range(4)]))

    def inference(model, x):
        model = model.to(dev).eval()

        def run(x):
            with torch.no_grad():
                return model(x)

        return run, [x]

    def mlp():
        layers = [m for _ in range(8) for m in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
        return inference(nn.Sequential(*layers), torch.rand(4, 64, **g))

    def convnet():
        widths = ((3, 32), (32, 64), (64, 64), (64, 128))
        layers = [m for i, o in widths for m in (nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.SiLU())]
        return inference(nn.Sequential(*layers), torch.rand(4, 3, 64, 64, **g))

    def encoder():
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
        return inference(nn.TransformerEncoder(layer, 4), torch.rand(4, 128, 256, **g))

    compiled("mlp_small_infer", mlp)
    compiled("convnet_infer", convnet)
    compiled("encoder_infer", encoder)
