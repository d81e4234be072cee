"""ray's TorchTrainer: two workers of a local cluster train with DDP, report, and keep a checkpoint."""

import os
import tempfile

import ray
import ray.train
import ray.train.torch
import torch


def train(config):
    torch.manual_seed(2)
    context = ray.train.get_context()
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 2))
    model = ray.train.torch.prepare_model(model)
    x = torch.randn(64, 6)
    dataset = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    data = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True)
    data = ray.train.torch.prepare_data_loader(data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    for epoch in range(3):
        data.sampler.set_epoch(epoch)
        total = torch.zeros(())
        for a, b in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(a), b)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        torch.distributed.all_reduce(total)
        metrics = {
            "loss": total.item() / 2 / len(data), "epoch": epoch, "ranks": context.get_world_size(),
            "kind": type(model).__name__, "backend": torch.distributed.get_backend(),
        }  # fmt: skip
        checkpoint = None
        with tempfile.TemporaryDirectory() as folder:
            if context.get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    with tempfile.TemporaryDirectory() as storage:
        trainer = ray.train.torch.TorchTrainer(
            train,
            train_loop_config={"lr": 1e-2},
            scaling_config=ray.train.ScalingConfig(num_workers=2, use_gpu=False),
            run_config=ray.train.RunConfig(storage_path=storage, name="run"),
        )
        result = trainer.fit()
        losses = result.metrics_dataframe
        print(losses[["epoch", "ranks", "kind", "backend"]].to_string(index=False))
        print("losses", *losses["loss"])
        with result.checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "model.pt"))
            print({name: value.double().abs().sum().item() for name, value in state.items()})
    ray.shutdown()
