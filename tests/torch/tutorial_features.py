"""Parts of torch as its tutorials show them: functions and hooks, data, optimizers, formats, parametrizations, masks."""

import math

import torch
import torch.nn.functional as F
from torch import nn, optim
from tutorial_registry import numbers, program


@program
def custom_functions_and_hooks():
    class LegendrePolynomial3(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * (5 * x**3 - 3 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 1.5 * (5 * x**2 - 1)

    x = torch.linspace(-math.pi, math.pi, 200)
    a, b, c, d = (torch.full((), v, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3))
    losses, seen = [], []
    handle = d.register_hook(lambda g: seen.append(g.item()) or g * 0.5)
    for _ in range(20):
        loss = (a + b * LegendrePolynomial3.apply(c + d * x) - torch.sin(x)).pow(2).sum()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 5e-6 * p.grad
                p.grad = None
    handle.remove()
    model, shapes = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), []
    model[0].register_forward_hook(lambda m, i, o: shapes.append(o.mean().item()))
    model[2].register_forward_pre_hook(lambda m, i: (i[0] * 2,))
    model[1].register_full_backward_hook(lambda m, gi, go: shapes.append(go[0].sum().item()))
    model(torch.ones(2, 3)).sum().backward()
    return numbers(losses, seen, shapes, model[0].weight.grad)


@program
def samplers():
    from torch.utils import data

    labels = [0] * 20 + [1] * 5
    weights = [1 / labels.count(label) for label in labels]
    dataset = data.TensorDataset(torch.arange(25), torch.tensor(labels))
    sampler = data.WeightedRandomSampler(weights, 30)
    found = []
    for numbers_, _ in data.DataLoader(dataset, batch_size=7, sampler=sampler, drop_last=True):
        found.append(numbers_)
    for x, _ in data.DataLoader(dataset, batch_size=6, shuffle=True):
        found.append(x)
    first, second = data.random_split(dataset, [0.8, 0.2])
    found += [torch.tensor(first.indices), torch.tensor(second.indices)]
    found.append(torch.tensor(list(data.BatchSampler(data.RandomSampler(range(8), replacement=True), 4, False))))
    return numbers(*found)


@program
def lbfgs():
    # In float32 a difference in the last bit of one product grows to 1e-4 within these steps.
    x, y = torch.tensor([-1.5, 2.0], dtype=torch.float64, requires_grad=True), []
    optimizer = optim.LBFGS([x], lr=0.5, max_iter=10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        loss.backward()
        y.append(loss.item())
        return loss

    for _ in range(4):
        optimizer.step(closure)
    return numbers(y[:25], x)


@program
def mixed_precision():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    optimizer, scaler = optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    x, y, losses = torch.randn(6, 8), torch.randn(6, 4), []
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
            loss = F.mse_loss(out, y)
        assert out.dtype == torch.bfloat16 and loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses += [loss.item(), norm.item(), scaler.get_scale()]
    return ("bfloat16", numbers(losses))


@program
def parametrizations():
    from torch.nn.utils import parametrizations as ready
    from torch.nn.utils import parametrize, prune

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x):
            return x.triu()

    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    with torch.no_grad():
        layer.weight = torch.arange(9.0).view(3, 3)
    found = [layer.weight.clone(), layer(torch.ones(1, 3))]
    spectral = ready.spectral_norm(nn.Linear(4, 5))
    found += [spectral(torch.ones(2, 4)), spectral.weight]
    older = nn.utils.spectral_norm(nn.Linear(4, 5))
    found.append(older(torch.ones(2, 4)))
    normed = ready.weight_norm(nn.Conv1d(2, 3, 2))
    normed(torch.ones(1, 2, 5)).sum().backward()
    found += [normed.parametrizations.weight.original0.grad, normed.parametrizations.weight.original1]
    turned = ready.orthogonal(nn.Linear(4, 4))
    found.append(turned.weight @ turned.weight.T)
    pruned = nn.Linear(4, 4)
    prune.random_unstructured(pruned, "weight", amount=0.3)
    prune.l1_unstructured(pruned, "bias", amount=2)
    prune.ln_structured(pruned, "weight", amount=0.5, n=2, dim=0)
    found += [pruned.weight_mask, pruned.bias_mask, pruned.weight]
    prune.remove(pruned, "weight")
    return numbers(*found, len(list(pruned.named_buffers())))


@program
def transformer_masks():
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x, padding = torch.randn(3, 5, 16), torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]).bool()
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    trained = encoder(
        x, mask=causal, src_key_padding_mask=torch.zeros(3, 5).masked_fill(padding, float("-inf")), is_causal=True
    )
    trained.sum().backward()
    encoder.eval()
    with torch.no_grad():
        shown = encoder(x, src_key_padding_mask=padding)
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()
    both = model(
        x, x[:, :4], tgt_mask=nn.Transformer.generate_square_subsequent_mask(4), memory_key_padding_mask=padding
    )
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    out, weights = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    return numbers(trained, shown[~padding], both, out, weights, encoder.layers[0].linear1.weight.grad)


@program
def packed_sequences_and_losses():
    from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

    sequences = [torch.randn(n, 4) for n in (5, 2, 3)]
    lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
    packed = pack_padded_sequence(pad_sequence(sequences, batch_first=True), torch.tensor([5, 2, 3]), True, False)
    out, (h, c) = lstm(packed)
    padded, lengths = pad_packed_sequence(out, batch_first=True)
    padded.sum().backward()
    gru = nn.GRU(4, 3)
    again, last = gru(pack_sequence(sequences, enforce_sorted=False))
    scores = torch.randn(12, 3, 5).log_softmax(2).requires_grad_()
    ctc = nn.CTCLoss()(scores, torch.randint(1, 5, (3, 4)), torch.full((3,), 12), torch.tensor([4, 2, 3]))
    ctc.backward()
    bag = nn.EmbeddingBag(10, 3, mode="sum", padding_idx=0)
    bags = bag(torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 4]), per_sample_weights=torch.rand(6))
    bags.sum().backward()
    return numbers(
        padded, lengths, h, c, lstm.weight_ih_l0.grad, again.data, last, ctc, scores.grad, bags, bag.weight.grad
    )


@program
def quantization():
    from torch.ao import quantization as tq

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.conv, self.bn = tq.QuantStub(), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
            self.relu, self.dequant = nn.ReLU(), tq.DeQuantStub()

        def forward(self, x):
            return self.dequant(self.relu(self.bn(self.conv(self.quant(x)))))

    torch.backends.quantized.engine = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
    model = M().eval()
    model.qconfig = tq.get_default_qconfig(torch.backends.quantized.engine)
    fused = tq.fuse_modules(model, [["conv", "bn", "relu"]])
    prepared = tq.prepare(fused)
    x = torch.randn(4, 1, 8, 8)
    prepared(x)
    made = tq.convert(prepared)
    return ("one step of the scale", numbers(made.conv.scale, made.conv.zero_point, made.quant.scale, made(x)))


@program
def forward_mode_and_per_sample_gradients():
    import torch.autograd.forward_ad as fwad
    from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    with fwad.dual_level():
        dual = fwad.make_dual(torch.linspace(-1, 1, 5), torch.ones(5))
        tangent = fwad.unpack_dual(dual.sin() * dual.exp()).tangent
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    x, y = torch.randn(6, 4), torch.randint(3, (6,))

    def loss(parameters, sample, label):
        return F.cross_entropy(functional_call(model, parameters, (sample.unsqueeze(0),)), label.unsqueeze(0))

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    point = torch.randn(3)
    found = [tangent, *each.values(), jacrev(torch.sin)(point), hessian(lambda v: (v**3).sum())(point)]
    found += jvp(lambda v: v.exp().sum(), (point,), (torch.ones(3),))
    layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.ReLU())
    leaf = torch.randn(2, 4, requires_grad=True)
    (
        checkpoint(layers, leaf, use_reentrant=False).sum()
        + checkpoint_sequential(layers, 2, leaf, use_reentrant=False).sum()
    ).backward()
    return numbers(*found, leaf.grad, layers[0].weight.grad)
