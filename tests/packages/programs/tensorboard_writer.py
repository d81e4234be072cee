"""tensorboard: logs are written and read back."""

import tempfile

import numpy as np
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

with tempfile.TemporaryDirectory() as folder:
    with SummaryWriter(folder) as writer:
        for step in range(3):
            writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
            writer.add_histogram("weights", torch.linspace(-1, 1, 50) * (step + 1), step)
        writer.add_image("picture", torch.zeros(3, 8, 8), 0)
        writer.add_images("pictures", np.zeros((2, 1, 4, 4), np.uint8), 0)
        writer.add_text("notes", "hello", 0)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 0)
        domains = {"lr": [0.1, 0.2], "kind": ["adam", "sgd"]}
        settings = {"lr": 0.1, "kind": "adam", "on": True}
        writer.add_hparams(settings, {"accuracy": 0.5}, hparam_domain_discrete=domains, run_name="run")
        writer.add_pr_curve("curve", torch.tensor([1, 0, 1, 0]), torch.tensor([0.9, 0.3, 0.6, 0.5]), 0)
    events = EventAccumulator(folder).Reload()
    tags = events.Tags()
    print(sorted(tags["scalars"]), tags["histograms"], sorted(tags["images"]), sorted(tags["tensors"]))
    print([(event.step, event.value) for event in events.Scalars("loss")])
    first = events.Histograms("weights")[-1].histogram_value
    print(first.min, first.max, first.num, first.sum_squares, len(first.bucket), sum(first.bucket))
    print(hparams({"lr": 0.1, "kind": "adam"}, {"accuracy": 0.5}, domains)[0])
