"""litgpt: a GPT of its own; and a script in the manner of nanoGPT: compile, autocast, DDP of one process, checkpoints."""

import contextlib
import inspect
import math
import os
import tempfile

import torch
import torch.distributed as dist
from litgpt import GPT, Config
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
model = GPT(
    Config(n_layer=2, n_head=4, n_query_groups=2, n_embd=32, padded_vocab_size=40, block_size=16, rotary_percentage=1.0)
)
ids = torch.randint(0, 40, (2, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, 40), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("litgpt", loss.item())


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.heads = heads

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.attend(self.first(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)
        x = x + self.project(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.second(x))


class Small(nn.Module):
    def __init__(self, vocabulary=40, width=32, length=16):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(length, width),
                "h": nn.ModuleList([Block(width, 4), Block(width, 4)]),
                "ln": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._start)
        for name, parameter in self.named_parameters():
            if name.endswith("project.weight"):
                torch.nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(4))

    def _start(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            torch.nn.init.zeros_(module.bias)

    def forward(self, ids, targets=None):
        place = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)
        x = self.transformer.wte(ids) + self.transformer.wpe(place)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln(x))
        return logits, None if targets is None else F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )

    @torch.no_grad()
    def generate(self, ids, count, temperature=1.0, top_k=None):
        for _ in range(count):
            logits = self(ids[:, -16:])[0][:, -1, :] / temperature
            if top_k is not None:
                least, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < least[:, [-1]]] = -float("Inf")
            ids = torch.cat((ids, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return ids


os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
dist.init_process_group("gloo")
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
context = (
    torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16) if os.environ.get("BF16") else contextlib.nullcontext()
)
raw = Small()
decayed = [p for p in raw.parameters() if p.dim() >= 2]
groups = [
    {"params": decayed, "weight_decay": 0.1},
    {"params": [p for p in raw.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
fused = "fused" in inspect.signature(torch.optim.AdamW).parameters
optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), **({"fused": False} if fused else {}))
scaler = torch.amp.GradScaler("cpu", enabled=False)
net = DistributedDataParallel(raw)
data = torch.randint(0, 40, (200,))


def batch():
    at = torch.randint(len(data) - 16, (4,))
    return torch.stack([data[i : i + 16] for i in at]), torch.stack([data[i + 1 : i + 17] for i in at])


for step in range(6):
    rate = 1e-2 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / 6)))
    for group in optimizer.param_groups:
        group["lr"] = rate
    for micro in range(2):
        net.require_backward_grad_sync = micro == 1
        with context:
            _, loss = net(*batch())
            loss = loss / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print("step", step, loss.item() * 2, norm.item())
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "ckpt.pt")
    torch.save({"model": raw.state_dict(), "optimizer": optimizer.state_dict(), "config": {"width": 32}}, path)
    kept = torch.load(path, map_location="cpu")
    other = Small()
    print("loaded", other.load_state_dict(kept["model"]), sorted(kept))
raw.eval()
print("generated", other.eval().generate(data[None, :4], 8, temperature=0.8, top_k=5).tolist())
scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))
print("scripted", tuple(scripted(torch.ones(1, 3)).shape))
total = torch.tensor([loss.item()])
dist.all_reduce(total, op=dist.ReduceOp.SUM)
dist.barrier()
print("reduced", bool(total.item() == loss.item()), dist.get_world_size(), dist.get_rank())
dist.destroy_process_group()
