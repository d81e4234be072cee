"""torch_geometric: graph convolutions, attention, pooling and batches train on graphs."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool
from torch_geometric.utils import add_self_loops, degree, remove_self_loops, softmax, to_dense_adj, to_undirected

torch.manual_seed(0)
edges = to_undirected(torch.randint(0, 20, (2, 40)))
edges = remove_self_loops(edges)[0]
data = Data(x=torch.randn(20, 8), edge_index=edges, y=torch.arange(20) % 3)
print(data, degree(edges[0], 20).sum().item(), data.is_undirected())


class Net(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second = layer(8, 16), layer(16, 3)

    def forward(self, x, edge_index):
        return self.second(F.relu(self.first(x, edge_index)), edge_index)


def gin(inputs, outputs):
    return GINConv(
        torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.ReLU(), torch.nn.Linear(outputs, outputs))
    )


for name, layer in (("gcn", GCNConv), ("sage", SAGEConv), ("gat", GATConv), ("gin", gin)):
    torch.manual_seed(1)
    net = Net(layer)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(3):
        loss = F.cross_entropy(net(data.x, data.edge_index), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(name, loss.item())
torch.manual_seed(2)
graphs = [Data(x=torch.randn(n, 4), edge_index=torch.randint(0, n, (2, 2 * n))) for n in (3, 5, 4, 6)]
for batch in DataLoader(graphs, batch_size=2):
    print("batch", batch.num_graphs, tuple(batch.x.shape), global_mean_pool(batch.x, batch.batch).sum().item())
whole = Batch.from_data_list(graphs)
print(
    "pooled",
    global_add_pool(whole.x, whole.batch).sum().item(),
    tuple(to_dense_adj(whole.edge_index, whole.batch).shape),
)
print("softmax", softmax(torch.randn(10), torch.arange(10) % 3).sum().item(), tuple(add_self_loops(edges)[0].shape))
