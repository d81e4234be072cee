"""datasets: tables in the format of torch, mapped, shuffled, streamed, and loaded by workers."""

import numpy as np
import torch
from datasets import Array2D, Dataset, Features
from torch.utils.data import DataLoader

rows = 20
table = Dataset.from_dict({
    "x": [[float(i), i * 2.0] for i in range(rows)], "y": list(range(rows)), "s": [str(i) for i in range(rows)],
})  # fmt: skip
table.set_format("torch", columns=["x", "y"])
print(type(table[0]["x"]).__name__, table[0]["x"].dtype, table[0]["y"].dtype, table[:3]["x"].shape)
torch.manual_seed(0)
for batch in DataLoader(table, batch_size=8, shuffle=True):
    print(batch["x"].sum().item(), batch["y"].tolist())
mapped = table.with_format(None).map(lambda row: {"z": torch.tensor(row["x"]).sum()}).with_format("torch")
print(mapped[3]["z"], mapped[3]["s"])
pictures = np.arange(24, dtype=np.float32).reshape(2, 3, 4).tolist()
pictures = Dataset.from_dict({"p": pictures}, features=Features({"p": Array2D((3, 4), "float32")})).with_format("torch")
print(pictures[0]["p"].shape, pictures[0]["p"].dtype, pictures[:]["p"].shape)
stream = table.with_format(None).to_iterable_dataset(num_shards=2).shuffle(seed=1, buffer_size=5)
for batch in DataLoader(stream, batch_size=5):
    print(batch["y"].sum().item(), batch["s"])
print(Dataset.from_dict({"a": [[1, 2], [3]]}).with_format("torch")[:]["a"])
for batch in DataLoader(table, batch_size=10, num_workers=2):
    print(batch["y"].sum().item())
