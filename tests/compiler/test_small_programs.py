"""Small programs as people write them: compiled, they train as they do without, bit for bit."""

import warnings

import mica as torch
import pytest
from mica import nn
from mica.nn import functional as F

PROGRAMS = {}


def program(function):
    """A program is a function of a compiler, which returns a step of training and the modules that it trains."""
    PROGRAMS[function.__name__] = function
    return function


@program
def vae(compiler):
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Linear(64, 128)
            self.mu = nn.Linear(128, 8)
            self.lv = nn.Linear(128, 8)
            self.d = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 64))

        def reparameterize(self, mu, lv):
            std = torch.exp(0.5 * lv)
            return mu + torch.randn_like(std) * std

        def forward(self, x):
            h = F.relu(self.e(x))
            mu, lv = self.mu(h), self.lv(h)
            return torch.sigmoid(self.d(self.reparameterize(mu, lv))), mu, lv

    torch.manual_seed(0)
    m = VAE()
    c = compiler(m)
    o = torch.optim.Adam(m.parameters(), 1e-3)

    @compiler
    def loss_fn(r, x, mu, lv):
        return F.binary_cross_entropy(r, x, reduction="sum") - 0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())

    def step(i):
        x = torch.rand(256, 64)
        r, mu, lv = c(x)
        loss = loss_fn(r, x, mu, lv)
        o.zero_grad()
        loss.backward()
        o.step()
        return loss.item()

    return step, [m]


@program
def actor_critic(compiler):
    class AC(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
            self.pi, self.v = nn.Linear(64, 3), nn.Linear(64, 1)

        def forward(self, x):
            h = self.b(x)
            return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)

    torch.manual_seed(0)
    m = AC()
    c = compiler(m)
    o = torch.optim.RMSprop(m.parameters(), 7e-4)

    def step(i):
        s = torch.randn(64, 4)
        logp, vals, rew, ent = [], [], [], []
        for _ in range(5):
            d, v = c(s)
            a = d.sample()
            logp.append(d.log_prob(a))
            vals.append(v)
            ent.append(d.entropy())
            rew.append((a == (s[:, 0] > 0).long()).float())
            s = s + 0.1 * a[:, None].float()
        R = torch.zeros(64)
        rets = []
        for r in reversed(rew):
            R = r + 0.99 * R
            rets.insert(0, R)
        ret, val, lp = torch.stack(rets), torch.stack(vals), torch.stack(logp)
        adv = (ret - val).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        loss = -(lp * adv).mean() + 0.5 * F.smooth_l1_loss(val, ret) - 0.01 * torch.stack(ent).mean()
        o.zero_grad()
        loss.backward()
        o.step()
        return loss.item()

    return step, [m]


@program
def gnn(compiler):
    class GCN(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.l = nn.Linear(i, o, bias=False)
            self.b = nn.Parameter(torch.zeros(o))

        def forward(self, x, e, n):
            src, dst = e
            deg = torch.zeros(n).scatter_add_(0, dst, torch.ones(dst.shape[0])).clamp(min=1)
            w = (deg[src] * deg[dst]).rsqrt()
            h = self.l(x)
            out = torch.zeros(n, h.shape[1]).index_add_(0, dst, h[src] * w[:, None])
            return out + self.b

    class GAT(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.l = nn.Linear(i, o)
            self.a = nn.Parameter(torch.randn(2 * o) * 0.1)

        def forward(self, x, e, n):
            h = self.l(x)
            src, dst = e
            sc = F.leaky_relu((torch.cat([h[src], h[dst]], -1) * self.a).sum(-1), 0.2)
            mx = torch.full((n,), -1e9).scatter_reduce(0, dst, sc, "amax")
            ex = (sc - mx[dst]).exp()
            den = torch.zeros(n).index_add(0, dst, ex)
            al = ex / (den[dst] + 1e-9)
            return torch.zeros_like(h).index_add(0, dst, al[:, None] * h[src])

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2, self.c3 = GCN(16, 32), GAT(32, 32), GCN(32, 4)

        def forward(self, x, e):
            n = x.shape[0]
            x = F.relu(self.c1(x, e, n))
            x = F.elu(self.c2(F.dropout(x, 0.5, self.training), e, n))
            return F.log_softmax(self.c3(x, e, n), -1)

    torch.manual_seed(0)
    m = Net()
    c = compiler(m)
    o = torch.optim.Adam(m.parameters(), 1e-2, weight_decay=5e-4)
    x = torch.randn(100, 16)
    e = torch.randint(0, 100, (2, 600))
    y = torch.randint(0, 4, (100,))
    mask = torch.rand(100) < 0.5

    def step(i):
        o.zero_grad()
        out = c(x, e)
        loss = F.nll_loss(out[mask], y[mask])
        loss.backward()
        o.step()
        return loss.item()

    return step, [m]


@program
def moe(compiler):
    class MoE(nn.Module):
        def __init__(self, d=32, n=4, k=2):
            super().__init__()
            self.g = nn.Linear(d, n)
            self.ex = nn.ModuleList(nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d)) for _ in range(n))
            self.k = k

        def forward(self, x):
            p = self.g(x).softmax(-1)
            w, idx = p.topk(self.k, -1)
            w = w / w.sum(-1, keepdim=True)
            out = torch.zeros_like(x)
            for i, e in enumerate(self.ex):
                r, kk = torch.where(idx == i)
                if r.numel() == 0:
                    continue
                out.index_add_(0, r, e(x[r]) * w[r, kk, None])
            imp = p.mean(0)
            load = F.one_hot(idx, len(self.ex)).float().sum((0, 1)) / idx.numel()
            return out, (imp * load).sum() * len(self.ex)

    torch.manual_seed(0)
    m = MoE()
    c = compiler(m)
    o = torch.optim.AdamW(m.parameters(), 1e-3)

    def step(i):
        x = torch.randn(128, 32)
        y, aux = c(x)
        loss = F.mse_loss(y, x.roll(1, 1)) + 0.01 * aux
        o.zero_grad()
        loss.backward()
        o.step()
        return loss.item()

    return step, [m]


@program
def custom_function(compiler):
    class STE(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, s):
            ctx.save_for_backward(x, s)
            return (x / s).round().clamp(-8, 7) * s

        @staticmethod
        def backward(ctx, g):
            x, s = ctx.saved_tensors
            m = ((x / s) >= -8) & ((x / s) <= 7)
            return g * m, None

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * torch.sigmoid(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return g * (s + x * s * (1 - s))

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(32, 64), nn.Linear(64, 8)
            self.register_buffer("s", torch.tensor(0.1))

        def forward(self, x):
            return F.linear(Swish.apply(self.l1(x)), STE.apply(self.l2.weight, self.s), self.l2.bias)

    torch.manual_seed(0)
    m = M()
    c = compiler(m)
    o = torch.optim.SGD(m.parameters(), 0.05)

    def step(i):
        x = torch.randn(64, 32)
        loss = c(x).square().mean()
        o.zero_grad()
        loss.backward()
        o.step()
        return loss.item()

    return step, [m]


@program
def amp_scaler(compiler):
    torch.manual_seed(0)
    m = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    c = compiler(m)
    o = torch.optim.AdamW(m.parameters(), 1e-3)
    sc = torch.amp.GradScaler("cpu", init_scale=256.0)

    def step(i):
        x = torch.randn(8, 3, 16, 16)
        y = torch.randint(0, 10, (8,))
        o.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16 if i % 2 else torch.float16):
            loss = F.cross_entropy(c(x), y)
        sc.scale(loss).backward()
        sc.unscale_(o)
        n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        sc.step(o)
        sc.update()
        return loss.item(), n.item(), sc.get_scale()

    return step, [m]


@program
def state_space(compiler):
    """A layer like Mamba's, which scans its states one after the other, and one that scans them in pairs."""
    from mica._higher_order_ops.associative_scan import associative_scan

    class Layer(nn.Module):
        def __init__(self, pairs):
            super().__init__()
            self.enter, self.leave = nn.Linear(16, 64), nn.Linear(32, 16)
            self.conv = nn.Conv1d(32, 32, 4, groups=32, padding=3)
            self.parts, self.time = nn.Linear(32, 16), nn.Linear(32, 32)
            self.decay = nn.Parameter(torch.arange(1, 9).log().expand(32, -1).clone())
            self.pairs = pairs

        def forward(self, x):
            x, gate = self.enter(x).transpose(1, 2).chunk(2, 1)
            x = F.silu(self.conv(x)[..., : x.shape[2]])
            b, c = self.parts(x.transpose(1, 2)).chunk(2, -1)
            time = F.softplus(self.time(x.transpose(1, 2))).transpose(1, 2)[..., None]
            keep, add = torch.exp(-self.decay.exp()[:, None] * time), time * b[:, None] * x[..., None]
            if self.pairs:
                _, states = associative_scan(
                    lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (keep, add), dim=2, combine_mode="generic"
                )
                y = (states.transpose(1, 2) @ c[..., None])[..., 0].transpose(1, 2)
            else:
                state, outputs = torch.zeros(x.shape[0], 32, 8), []
                for i in range(x.shape[2]):
                    state = keep[:, :, i] * state + add[:, :, i]
                    outputs.append((state @ c[:, i, :, None])[..., 0])
                y = torch.stack(outputs, -1)
            return self.leave((y * F.silu(gate)).transpose(1, 2))

    torch.manual_seed(0)
    m = nn.Sequential(Layer(False), nn.LayerNorm(16), Layer(True))
    c = compiler(m)
    o = torch.optim.SGD(m.parameters(), 0.1)

    def step(i):
        x = torch.randn(2, 7, 16)
        loss = F.mse_loss(c(x), x.cumsum(1))
        loss.backward()
        o.step()
        o.zero_grad()
        return loss.item()

    return step, [m]


@program
def whole_step(compiler):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64))
    o = torch.optim.AdamW(m.parameters(), 1e-3)

    @compiler
    def train(x, y):
        loss = F.huber_loss(m(x), y)
        loss.backward()
        o.step()
        o.zero_grad()
        return loss

    def step(i):
        x = torch.randn(128, 64)
        return train(x, x.flip(1)).item()

    return step, [m]


WAYS = {
    "compiled": {},
    "one graph": {"fullgraph": True},
    "a backend": {"backend": lambda graph, inputs: graph.forward},
    "open sizes": {"backend": lambda graph, inputs: graph.forward, "dynamic": True},
}


def trained(make, compiler):
    step, modules = make(compiler)
    losses = []
    for number in range(3):
        torch.manual_seed(100 + number)
        losses.append(step(number))
    return losses, [each.detach().clone() for module in modules for each in (*module.parameters(), *module.buffers())]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_train_alike(name):
    wanted, state = trained(PROGRAMS[name], lambda function: function)
    for way, options in WAYS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more graphs than are compiled
            given, made = trained(PROGRAMS[name], lambda function: torch.compile(function, **options))  # noqa: B023
        assert given == wanted, way
        assert all(map(torch.equal, made, state)), way
