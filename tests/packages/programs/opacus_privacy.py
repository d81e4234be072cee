"""opacus: gradients of each sample, clipped and with noise; a privacy budget."""

import warnings

import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.validators import ModuleValidator

warnings.simplefilter("ignore")
torch.manual_seed(0)
x, y = torch.randn(32, 1, 8, 8), torch.arange(32) % 3
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
)
wrapped = GradSampleModule(model)
torch.nn.functional.cross_entropy(wrapped(x), y).backward()
print(
    "samples",
    [tuple(p.grad_sample.shape) for p in wrapped.parameters()],
    sum(p.grad_sample.abs().sum().item() for p in wrapped.parameters()),
)
print(
    "valid",
    ModuleValidator.is_valid(model),
    [type(m).__name__ for m in ModuleValidator.fix(torch.nn.Sequential(torch.nn.BatchNorm2d(4)))],
)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=loader,
    noise_multiplier=1.0,
    max_grad_norm=1.0,
    poisson_sampling=False,
)
for inputs, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
accountant = RDPAccountant()
accountant.step(noise_multiplier=1.0, sample_rate=0.25)
print("budget", accountant.get_epsilon(delta=1e-3))
