"""lightning: a module trains with callbacks, checkpoints and resumes."""

import logging
import os
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Model(L.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, prog_bar=False)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)}


L.seed_everything(1, verbose=False)
x = torch.randn(64, 8)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).sin())
train = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
val = torch.utils.data.DataLoader(data, batch_size=32)
with tempfile.TemporaryDirectory() as folder:
    options = {
        "accelerator": "cpu",
        "devices": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    callbacks = [
        ModelCheckpoint(folder, monitor="val_loss", save_last=True),
        EarlyStopping("val_loss", patience=9),
        LearningRateMonitor(),
    ]
    trainer = L.Trainer(max_epochs=4, logger=CSVLogger(folder), callbacks=callbacks, gradient_clip_val=1.0, **options)
    model = Model()
    trainer.fit(model, train, val)
    print("train", trainer.callback_metrics["train_loss"].item(), "val", trainer.callback_metrics["val_loss"].item())
    print("files", sorted(name for name in os.listdir(folder) if name.endswith(".ckpt"))[-1])
    loaded = Model.load_from_checkpoint(os.path.join(folder, "last.ckpt"), weights_only=False)
    print("loaded", loaded.hparams.width, torch.equal(loaded.net[0].weight, model.net[0].weight))
    more = L.Trainer(max_epochs=6, logger=False, enable_checkpointing=False, accumulate_grad_batches=2, **options)
    more.fit(Model(), train, val, ckpt_path=os.path.join(folder, "last.ckpt"), weights_only=False)
    print("resumed", more.current_epoch, more.global_step, more.callback_metrics["val_loss"].item())
    print("validated", more.validate(loaded, val, verbose=False)[0]["val_loss"])
fabric = L.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
net, optimizer = fabric.setup(torch.nn.Linear(8, 1), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
print("fabric", net(x).dtype, fabric.world_size, fabric.device)
