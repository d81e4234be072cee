"""zuko: six kinds of normalizing flows learn a density and are sampled; normflows beside it."""

import normflows as nf
import numpy as np
import torch
import zuko

np.random.seed(0)
torch.manual_seed(0)
x = torch.randn(64, 2) * torch.tensor([1.0, 2.0]) + 1
layers = []
for _ in range(2):
    layers += [nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 16, 2], init_zeros=True)), nf.flows.Permute(2, "swap")]
layers += [nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8), nf.flows.LULinearPermute(2)]
flow = nf.NormalizingFlow(nf.distributions.DiagGaussian(2), layers)
optimizer = torch.optim.Adam(flow.parameters(), 1e-2)
for _ in range(3):
    loss = flow.forward_kld(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("normflows", loss.item())
print("normflows", flow.sample(4)[0].double().sum().item())
for kind in (zuko.flows.NSF, zuko.flows.MAF, zuko.flows.NAF, zuko.flows.CNF, zuko.flows.GF, zuko.flows.BPF):
    torch.manual_seed(1)
    options = {} if kind is zuko.flows.CNF else {"transforms": 1}
    flow = kind(features=2, context=1, hidden_features=(16, 16), **options)
    optimizer = torch.optim.Adam(flow.parameters(), 1e-2)
    for _ in range(2):
        loss = -flow(x[:, :1]).log_prob(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        print(kind.__name__, loss.item(), tuple(flow(torch.zeros(1)).sample((3,)).shape))
