"""pytorch-metric-learning: losses, miners and an accuracy calculator."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers

torch.manual_seed(0)
x, labels = torch.randn(16, 8), torch.arange(16) % 4
for make in (
    losses.TripletMarginLoss, losses.ContrastiveLoss, losses.NTXentLoss, losses.MultiSimilarityLoss, losses.CircleLoss, losses.SupConLoss,
    losses.LiftedStructureLoss, losses.AngularLoss, losses.NPairsLoss,
):  # fmt: skip
    net = torch.nn.Linear(8, 6, bias=False)
    torch.nn.init.eye_(net.weight)
    torch.manual_seed(1)
    loss = make()(net(x), labels)
    loss.backward()
    print(make.__name__, loss.item(), net.weight.grad.abs().sum().item())
torch.manual_seed(2)
arc = losses.ArcFaceLoss(4, 8)
print("arc", arc(x, labels).item(), losses.ProxyAnchorLoss(4, 8)(x, labels).item())
pairs = miners.MultiSimilarityMiner()(x, labels)
print("mined", [len(part) for part in pairs])
hard = miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")(x, labels)
loss = losses.TripletMarginLoss(distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0))(
    x, labels, hard
)
print("triplets", len(hard[0]), loss.item())
