"""ignite: an engine trains with metrics, handlers, schedules and checkpoints."""

import tempfile

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, LinearCyclicalScheduler
from ignite.metrics import Accuracy, Fbeta, Loss, RunningAverage

torch.manual_seed(0)
x = torch.randn(64, 6)
y = (x[:, 0] > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, criterion)
evaluator = create_supervised_evaluator(model, {"accuracy": Accuracy(), "loss": Loss(criterion), "f": Fbeta(1.0)})
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
trainer.add_event_handler(Events.ITERATION_STARTED, LinearCyclicalScheduler(optimizer, "lr", 0.05, 0.2, len(loader)))


@trainer.on(Events.EPOCH_COMPLETED)
def report(engine):
    evaluator.run(loader)
    print(
        "epoch",
        engine.state.epoch,
        engine.state.metrics["running"],
        {k: float(v) for k, v in evaluator.state.metrics.items()},
    )


with tempfile.TemporaryDirectory() as folder:
    keeper = Checkpoint(
        {"model": model, "optimizer": optimizer, "trainer": trainer}, DiskSaver(folder, create_dir=True), n_saved=2
    )
    trainer.add_event_handler(Events.EPOCH_COMPLETED, keeper)
    stopper = EarlyStopping(2, lambda engine: -engine.state.metrics["loss"], trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopper)
    trainer.run(loader, max_epochs=3)
    print("saved", str(keeper.last_checkpoint).rpartition("/")[2])
    Checkpoint.load_objects({"model": model}, torch.load(keeper.last_checkpoint))
print("weights", sum(p.abs().sum().item() for p in model.parameters()))
