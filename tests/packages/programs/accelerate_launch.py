"""accelerate's launcher: two processes train with DDP and with FSDP2, accumulate, clip, gather, save and load."""

import os
import subprocess
import sys
import tempfile


def launch(kind):
    """What the program prints under `accelerate launch`, which starts it in two processes."""
    options = {
        "ddp": ["--multi_gpu"],
        "fsdp2": ["--use_fsdp", "--fsdp_version", "2", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP",
                  "--fsdp_transformer_layer_cls_to_wrap", "Block", "--fsdp_reshard_after_forward", "true"],
    }[kind]  # fmt: skip
    command = [
        sys.executable, "-m", "accelerate.commands.launch", *options, "--num_processes", "2", "--num_machines", "1",
        "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0", os.path.abspath(__file__), kind,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(1)
    return done.stdout


def train(kind):
    import torch
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DistributedType, set_seed

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(12, 24), torch.nn.Linear(24, 12)

        def forward(self, x):
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(6, 12), torch.nn.Linear(12, 2)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(2))

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.last(x)

    state = PartialState(cpu=True)
    if kind != "ddp":
        # accelerate shards models on accelerators only, so it is told that processes on the CPU are accelerators.
        state._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    set_seed(3)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = Model()
    x = torch.randn(64, 6)
    dataset = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    data = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
    accelerator.print(accelerator.distributed_type, accelerator.num_processes, type(model).__name__, len(data))
    for _ in range(3):
        total = 0.0
        for a, b in data:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(a), b)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            total += accelerator.gather_for_metrics(loss.detach().reshape(1)).mean().item()
        accelerator.print("loss", total / len(data), "norm", float(norm), "lr", scheduler.get_last_lr())
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        for name, value in whole.items():
            print(name, tuple(value.shape), value.double().sum().item())
    folder = [tempfile.mkdtemp() if accelerator.is_main_process else None]
    torch.distributed.broadcast_object_list(folder)
    accelerator.save_state(folder[0])
    accelerator.wait_for_everyone()
    with torch.no_grad():
        before = model(x[:4])
        for parameter in model.parameters():
            parameter.mul_(0.5)
        accelerator.load_state(folder[0])
        accelerator.print("restored", torch.allclose(before, model(x[:4])))
    accelerator.end_training()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1])
    else:
        for kind in ("ddp", "fsdp2"):
            print(kind)
            print(launch(kind), end="")
