"""tensordict: batches of named tensors, modules on them, memory maps, and stacked parameters."""

import tempfile

import torch
from tensordict import MemoryMappedTensor, TensorDict, TensorDictParams, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential

torch.manual_seed(0)
data = TensorDict({"x": torch.randn(4, 3), "inner": {"y": torch.arange(8).view(4, 2)}}, batch_size=[4])
print(data.shape, sorted(data.keys(True, True), key=str), data[1:3]["inner", "y"].tolist())
stacked = torch.stack([data, data.apply(lambda t: t + 1)], 0)
print(tuple(stacked.batch_size), stacked["x"].sum().item(), tuple(torch.cat([data, data]).shape))
data["z"] = torch.ones(4)
print(
    data.select("z").sum().get("z").item() if data.select("z").sum().batch_dims == 0 else "",
    data.reshape(2, 2).batch_size,
)
net = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(3, 5), in_keys=["x"], out_keys=["hidden"]),
    TensorDictModule(torch.tanh, in_keys=["hidden"], out_keys=["out"]),
)
out = net(data.clone())["out"]
out.sum().backward()
print("module", out.sum().item(), sum(p.grad.abs().sum().item() for p in net.parameters()))
parameters = TensorDict.from_module(torch.nn.Linear(3, 2))
print("parameters", sorted(parameters.keys()), len(list(TensorDictParams(parameters).parameters())))
with tempfile.TemporaryDirectory() as folder:
    data.memmap(folder)
    again = TensorDict.load_memmap(folder)
    print("mapped", bool((again == data).all()), isinstance(again["x"], MemoryMappedTensor))


@tensorclass
class Point:
    place: torch.Tensor
    name: str


point = Point(place=torch.zeros(2, 3), name="origin", batch_size=[2])
print("class", point[0].place.shape, point.name, torch.stack([point, point]).batch_size)
