"""laplace-torch: a Laplace approximation of a small network's posterior, its marginal likelihood and its predictions."""

import torch
from laplace import Laplace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.linspace(-2, 2, 40)[:, None]
y = torch.sin(2 * x) + 0.1 * torch.randn(40, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=20)
model = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(60):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", f"{loss:.5f}")
for weights, structure in (
    ("all", "full"),
    ("all", "kron"),
    ("all", "diag"),
    ("last_layer", "full"),
    ("last_layer", "kron"),
):
    la = Laplace(model, "regression", subset_of_weights=weights, hessian_structure=structure)
    la.fit(loader)
    la.optimize_prior_precision(n_steps=20)
    mean, var = la(torch.tensor([[0.5], [3.0]]))
    print(
        weights,
        structure,
        f"{la.log_marginal_likelihood():.3f}",
        [f"{v:.4f}" for v in mean.flatten().tolist()],
        [f"{v:.3f}" for v in var.flatten().tolist()],
    )
labels = (x[:, 0] > 0).long() + (x[:, 0] > 1).long()
classifier = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(classifier.parameters(), lr=0.05)
for _ in range(40):
    optimizer.zero_grad()
    nn.functional.cross_entropy(classifier(x), labels).backward()
    optimizer.step()
la = Laplace(classifier, "classification", subset_of_weights="last_layer", hessian_structure="kron")
la.fit(DataLoader(TensorDataset(x, labels), batch_size=20))
for link in ("probit", "bridge"):
    print(link, [f"{v:.4f}" for v in la(torch.tensor([[0.4], [1.5]]), link_approx=link).flatten().tolist()])
