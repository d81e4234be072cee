"""Programs as torch's tutorials write them, small: each returns numbers. tutorial_programs.py NAME... prints them as JSON."""

import collections
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def numbers(*values):
    """Tensors and numbers as one list."""
    found = []
    for value in values:
        found += torch.as_tensor(value).detach().double().flatten().tolist()[:200]
    return found


@program
def blitz():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, 5)
            self.pool = nn.MaxPool2d(2, 2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x)))
            x = self.pool(F.relu(self.conv2(x)))
            x = torch.flatten(x, 1)
            return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))

    net = Net()
    optimizer = optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(16, 1, 32, 32), torch.randint(10, (16,))
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    _, predicted = torch.max(net(images), 1)
    return numbers(losses, predicted, net.conv1.weight.grad)


@program
def char_rnn():
    letters = "abcdefghij"

    def line(name):
        made = torch.zeros(len(name), 1, len(letters))
        for i, letter in enumerate(name):
            made[i][0][letters.find(letter)] = 1
        return made

    class RNN(nn.Module):
        def __init__(self, inputs, hidden, outputs):
            super().__init__()
            self.hidden_size = hidden
            self.i2h = nn.Linear(inputs + hidden, hidden)
            self.h2o = nn.Linear(hidden, outputs)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, x, hidden):
            hidden = torch.tanh(self.i2h(torch.cat((x, hidden), 1)))
            return self.softmax(self.h2o(hidden)), hidden

    rnn, losses = RNN(len(letters), 16, 3), []
    for step in range(12):
        name, category = [("abba", 0), ("cdef", 1), ("hijj", 2)][step % 3]
        hidden = torch.zeros(1, rnn.hidden_size)
        rnn.zero_grad()
        for letter in line(name):
            output, hidden = rnn(letter, hidden)
        loss = nn.NLLLoss()(output, torch.tensor([category]))
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-0.05)
        losses.append(loss.item())
    value, index = output.topk(1)
    return numbers(losses, value, index)


@program
def seq2seq_with_attention():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.gru, self.dropout = (
                nn.Embedding(12, 16),
                nn.GRU(16, 16, batch_first=True),
                nn.Dropout(0.1),
            )

        def forward(self, x):
            return self.gru(self.dropout(self.embedding(x)))

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.Wa, self.Ua, self.Va = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 1)

        def forward(self, query, keys):
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            weights = F.softmax(scores, dim=-1)
            return torch.bmm(weights, keys), weights

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.attention = nn.Embedding(12, 16), Attention()
            self.gru, self.out = nn.GRU(32, 16, batch_first=True), nn.Linear(16, 12)

        def forward(self, outputs, hidden, target):
            word, made = torch.zeros(outputs.size(0), 1, dtype=torch.long), []
            for i in range(target.size(1)):
                context, _ = self.attention(hidden.permute(1, 0, 2), outputs)
                output, hidden = self.gru(torch.cat((self.embedding(word), context), dim=2), hidden)
                made.append(self.out(output))
                word = target[:, i].unsqueeze(1)
            return F.log_softmax(torch.cat(made, dim=1), dim=-1)

    encoder, decoder = Encoder(), Decoder()
    optimizers = [optim.Adam(m.parameters(), lr=0.01) for m in (encoder, decoder)]
    source, target = torch.randint(12, (4, 6)), torch.randint(12, (4, 5))
    losses = []
    for _ in range(6):
        for optimizer in optimizers:
            optimizer.zero_grad()
        outputs, hidden = encoder(source)
        scores = decoder(outputs, hidden, target)
        loss = nn.NLLLoss()(scores.view(-1, 12), target.view(-1))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return numbers(losses, scores)


@program
def dcgan():
    def weights_init(m):
        name = m.__class__.__name__
        if name.find("Conv") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)
        elif name.find("BatchNorm") != -1:
            nn.init.normal_(m.weight.data, 1.0, 0.02)
            nn.init.constant_(m.bias.data, 0)

    generator = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
    )  # fmt: skip
    generator.apply(weights_init)
    judge.apply(weights_init)
    criterion = nn.BCELoss()
    by_judge = optim.Adam(judge.parameters(), lr=0.002, betas=(0.5, 0.999))
    by_generator = optim.Adam(generator.parameters(), lr=0.002, betas=(0.5, 0.999))
    found = []
    for _ in range(3):
        judge.zero_grad()
        real, label = torch.rand(8, 3, 8, 8), torch.full((8,), 1.0)
        error_real = criterion(judge(real).view(-1), label)
        error_real.backward()
        fake = generator(torch.randn(8, 8, 1, 1))
        label.fill_(0.0)
        error_fake = criterion(judge(fake.detach()).view(-1), label)
        error_fake.backward()
        by_judge.step()
        generator.zero_grad()
        label.fill_(1.0)
        error = criterion(judge(fake).view(-1), label)
        error.backward()
        by_generator.step()
        found += [error_real, error_fake, error]
    return numbers(*found, fake)


@program
def transfer_learning():
    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride=1):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
            self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
            return F.relu(y + self.downsample(x))

    model = nn.Sequential(
        collections.OrderedDict(
            stem=nn.Conv2d(3, 8, 3, padding=1),
            layer1=Block(8, 8),
            layer2=Block(8, 16, 2),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            fc=nn.Linear(16, 10),
        )
    )
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.fc = nn.Linear(model.fc.in_features, 2)
    optimizer = optim.SGD(model.fc.parameters(), lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    x, y, losses = torch.randn(8, 3, 12, 12), torch.randint(2, (8,)), []
    for epoch in range(5):
        model.train(epoch % 2 == 0)
        optimizer.zero_grad()
        with torch.set_grad_enabled(epoch % 2 == 0):
            loss = F.cross_entropy(model(x), y)
        if epoch % 2 == 0:
            loss.backward()
            optimizer.step()
        scheduler.step()
        losses += [loss.item(), scheduler.get_last_lr()[0]]
    return numbers(losses, model.layer1.bn1.running_mean, model.fc.weight)


@program
def reinforcement_learning():
    Transition = collections.namedtuple("Transition", ("state", "action", "next_state", "reward"))
    policy, target = (nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2)) for _ in range(2))
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory, state, losses = collections.deque(maxlen=100), torch.zeros(1, 2), []
    for step in range(30):
        if torch.rand(()).item() > 0.3:
            with torch.no_grad():
                action = policy(state).max(1).indices.view(1, 1)
        else:
            action = torch.randint(2, (1, 1))
        following = None if step % 7 == 6 else state + torch.tensor([[0.1, -0.1]]) * (2 * action - 1)
        memory.append(Transition(state, action, following, torch.tensor([1.0 - state.abs().sum().item()])))
        state = torch.zeros(1, 2) if following is None else following
        if len(memory) < 8:
            continue
        batch = Transition(*zip(*list(memory)[-8:], strict=True))
        mask = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
        values = policy(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        following_values = torch.zeros(8)
        with torch.no_grad():
            following_values[mask] = target(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
        expected = following_values * 0.9 + torch.cat(batch.reward)
        loss = nn.SmoothL1Loss()(values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        theirs, ours = target.state_dict(), policy.state_dict()
        for key in ours:
            theirs[key] = ours[key] * 0.05 + theirs[key] * 0.95
        target.load_state_dict(theirs)
        losses.append(loss.item())
    categorical = torch.distributions.Categorical(logits=policy(torch.zeros(1, 2)))
    return numbers(losses, categorical.sample(), categorical.entropy())


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
    x, y = torch.tensor([-1.5, 2.0], requires_grad=True), []
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    told = {}
    for name in sys.argv[1:] or PROGRAMS:
        torch.manual_seed(0)
        np.random.seed(0)
        told[name] = PROGRAMS[name]()
    print("\n" + json.dumps(told))
