"""The peak that is foretold against the peak that is measured."""

import mica
import pytest
from mica import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, words=500, width=128, layers=3, heads=4, length=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        places = mica.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(places))))


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, num_layers=2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)),
            lambda: mica.randn(256, 512)),
    "convnet": (lambda: nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                      nn.Linear(64 * 64, 10)),
                lambda: mica.randn(16, 3, 32, 32)),
    "lstm": (Last, lambda: mica.randn(32, 20, 64)),
    "gpt": (GPT, lambda: mica.randint(0, 500, (8, 64))),
}  # fmt: skip


def measured(make, data, training):
    """The peak of two steps, of what is made for them alone: the model, the inputs, the optimizer's state."""
    with mica.inspect.memory() as m:
        model, x = make(), data()
        optimizer = mica.optim.AdamW(model.parameters(), lr=1e-3) if training else None
        for _ in range(2):  # the second step finds the optimizer's state
            if not training:
                with mica.no_grad():
                    model(x)
                continue
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            del loss
            optimizer.step()
    m.blocks = [block for block in m.blocks if not block.before]
    m._at_peak = {}
    return m


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_within_five_per_cent(name, training):
    make, data = MODELS[name]
    model, x = make(), data()
    foretold = mica.inspect.estimate(model, x, optimizer="AdamW" if training else None)
    m = measured(make, data, training)
    assert foretold.peak == pytest.approx(m.peak(), rel=0.05), (foretold.to_dict(), m.at_peak())
    kinds = foretold.kinds
    assert kinds["parameters"] == sum(p.nbytes for p in model.parameters())


def test_nothing_is_allocated():
    model = nn.Linear(64, 64)
    before = mica._C._cpu_memory_stats()[2]
    huge = nn.Sequential(*[nn.Linear(20000, 20000, device="meta") for _ in range(8)])
    estimate = mica.inspect.estimate(huge, mica.empty(1024, 20000, device="meta"), optimizer="Adam")
    assert estimate.peak > 4 * 8 * 4 * 20000**2 and mica._C._cpu_memory_stats()[2] - before < 64 << 20
    assert not estimate.fits(24 << 30) and estimate.fits(1 << 50) and model.weight.grad is None


def test_largest_batch_and_dtype():
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    x = mica.randn(4, 256)
    budget = 8 << 20
    best = mica.inspect.estimate(model, x, optimizer="SGD").largest_batch(budget)
    at = lambda n: mica.inspect.estimate(model, mica.empty(n, 256, device="meta"), optimizer="SGD")  # noqa: E731
    assert at(best).fits(budget) and not at(best + 1).fits(budget)
    whole, half = mica.inspect.estimate(model, x), mica.inspect.estimate(model, x, dtype=mica.float16)
    assert half.kinds["parameters"] * 2 == whole.kinds["parameters"]
    assert mica.inspect.estimate(model, x, optimizer="SGD").largest_batch(1000) == 0


def test_the_model_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    mica.inspect.estimate(model, mica.randn(3, 4), optimizer=lambda p: mica.optim.SGD(p, lr=0.1, momentum=0.9))
    assert all(mica.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None and p.device.type == "cpu" for p in model.parameters())


def test_refusals():
    with pytest.raises(ValueError, match="no optimizer is named 'Adamm'"):
        mica.inspect.estimate(nn.Linear(2, 2), mica.ones(1, 2), optimizer="Adamm")
    with pytest.raises(ValueError, match='"cpu" or "cuda"'):
        mica.inspect.estimate(nn.Linear(2, 2), mica.ones(1, 2), device="meta")
    assert "peak of an inference step" in str(mica.inspect.estimate(nn.Linear(2, 2), mica.ones(1, 2)))
