"""A small training with three copies that nobody asked for and one leak. `mica trace examples/hidden_copies.py` finds them."""

import torch
from torch import nn

torch.manual_seed(0)
images = torch.randn(64, 3, 16, 16)
labels = torch.randint(0, 10, (64,))
weights = torch.linspace(0.5, 1.5, 10, dtype=torch.float64)
model = nn.Linear(3 * 16 * 16, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history = []

for _step in range(5):
    pixels = images.permute(0, 2, 3, 1)
    rows = pixels.reshape(64, -1)  # a copy: the permuted images cannot be seen as rows
    scores = model(rows)
    scaled = scores * weights  # a copy: float32 meets float64, all scores are converted
    order = scaled.t().flatten()  # a copy: the transpose cannot be seen as one dimension
    loss = nn.functional.cross_entropy(scores, labels) + order.mean().float()
    history.append(scores.softmax(1))  # a leak: the probabilities of every step stay, and with them their graph
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"{len(history)} steps, the last loss {loss.item():.3f}")
