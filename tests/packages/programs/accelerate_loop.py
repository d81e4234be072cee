"""accelerate: a training loop with accumulation, clipping, gathering, and states that are saved and loaded."""

import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.utils import set_seed

set_seed(3)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
x = torch.randn(40, 6)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8, shuffle=True)
model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
print(accelerator.device, accelerator.num_processes, accelerator.is_main_process, accelerator.mixed_precision)
for _ in range(3):
    for a, b in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(a), b)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    print("loss", accelerator.gather_for_metrics(loss).item(), "lr", scheduler.get_last_lr())
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    accelerator.load_state(folder)
    print("restored", all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)))
    accelerator.save_model(model, folder)
    with init_empty_weights():
        empty = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 2))
    print("empty", next(empty.parameters()).device)
    filled = load_checkpoint_and_dispatch(empty, f"{folder}/model.safetensors", device_map={"": "cpu"})
    print("filled", torch.allclose(filled(x), accelerator.unwrap_model(model)(x)))
