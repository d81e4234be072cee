"""fastai: a learner with callbacks, schedules and tabular data."""

import numpy as np
import torch
from fastai.callback.schedule import fit_one_cycle  # noqa: F401
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.losses import MSELossFlat
from fastai.metrics import mae
from fastai.torch_core import set_seed

set_seed(0)
x = torch.randn(64, 6)
y = x[:, :1] * 2 - x[:, 1:2]
data = list(zip(x, y, strict=True))
loaders = DataLoaders(DataLoader(data[:48], bs=12, shuffle=False), DataLoader(data[48:], bs=16))
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
learner = Learner(loaders, model, loss_func=MSELossFlat(), metrics=mae)
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(3, 1e-2)
print("values", np.array(learner.recorder.values).round(4).tolist())
print("lrs", [round(float(lr), 6) for lr in learner.recorder.lrs[::4]])
predictions, targets = learner.get_preds(dl=loaders.valid)
print("predictions", tuple(predictions.shape), predictions.mean().item(), (predictions - targets).abs().mean().item())
