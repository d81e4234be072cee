"""Models as torch's tutorials build and train them, small."""

import collections

import torch
import torch.nn.functional as F
from torch import nn, optim
from tutorial_registry import numbers, program


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
