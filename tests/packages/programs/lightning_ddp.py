"""lightning's strategy ddp: two processes train, log means over both, save a checkpoint and go on from it."""

import logging
import os
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.seen = []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        self.seen.append(self.trainer.callback_metrics["train_loss_epoch"].item())

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


L.seed_everything(1, verbose=False)
x = torch.randn(64, 8)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).sin())
train = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
val = torch.utils.data.DataLoader(data, batch_size=16)
folder = os.environ.setdefault("MICA_LIGHTNING_FOLDER", tempfile.mkdtemp())  # the second process gets it from the first


def fit(epochs, **options):
    model = Model()
    trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=epochs, logger=False, default_root_dir=folder,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, gradient_clip_val=0.5,
        callbacks=[ModelCheckpoint(dirpath=folder, filename="last-{epoch}", save_top_k=-1)],
    )  # fmt: skip
    trainer.fit(model, train, val, **options)
    if trainer.is_global_zero:
        print(trainer.world_size, type(trainer.strategy).__name__, trainer.global_step, "losses", *model.seen)
        print("val", trainer.callback_metrics["val_loss"].item())
        print("weights", *[p.double().abs().sum().item() for p in model.parameters()])


fit(3)
fit(5, ckpt_path=f"{folder}/last-epoch=2.ckpt")
