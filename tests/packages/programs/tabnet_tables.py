"""pytorch-tabnet: a classifier of tables is pretrained, trained, explained, saved and loaded."""

import os
import tempfile

import numpy as np
import torch
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier

generator = np.random.default_rng(0)
x = generator.standard_normal((128, 6)).astype(np.float32)
y = (x[:, 0] > 0).astype(int)
shared = {"n_d": 4, "n_a": 4, "seed": 0, "verbose": 0, "device_name": "cpu"}
fit = {"batch_size": 64, "virtual_batch_size": 32}
pretrainer = TabNetPretrainer(**shared)
pretrainer.fit(x, max_epochs=2, pretraining_ratio=0.5, **fit)
print("pretrained", pretrainer.history["loss"])
model = TabNetClassifier(
    n_steps=2, optimizer_params={"lr": 2e-2}, scheduler_fn=torch.optim.lr_scheduler.StepLR,
    scheduler_params={"step_size": 2, "gamma": 0.9}, **shared,
)  # fmt: skip
model.fit(x, y, eval_set=[(x, y)], eval_metric=["auc", "logloss"], max_epochs=4, patience=0, **fit)
print("trained", model.history["loss"], model.history["val_0_auc"])
print("chances", model.predict_proba(x[:3]).tolist(), model.feature_importances_.tolist())
explanation, masks = model.explain(x[:4])
print("explained", float(explanation.sum()), sorted(masks))
os.chdir(tempfile.mkdtemp())  # the package prints the path
path = model.save_model("tabnet")
loaded = TabNetClassifier(device_name="cpu", verbose=0)
loaded.load_model(path)
print("loaded", loaded.predict(x[:5]).tolist())
