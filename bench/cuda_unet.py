"""A training step of a small U-Net on CUDA: group norms, SiLU, average pooling, nearest resampling, bfloat16 autocast.

python bench/cuda_unet.py --lib mica            # or torch
python bench/cuda_unet.py --lib mica --channels-last
"""

import argparse
import importlib
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--lib", default="mica", choices=["mica", "torch"])
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--steps", type=int, default=30)
arguments = parser.parse_args()
torch = importlib.import_module(arguments.lib)
nn, functional = torch.nn, torch.nn.functional


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm_1, self.conv_1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm_2, self.conv_2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.conv_1(functional.silu(self.norm_1(x)))
        return self.conv_2(functional.silu(self.norm_2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([Block(width, width), Block(width, 2 * width), Block(2 * width, 4 * width)])
        self.middle = Block(4 * width, 4 * width)
        self.up = nn.ModuleList([Block(8 * width, 2 * width), Block(4 * width, width), Block(2 * width, width)])
        self.norm, self.last = nn.GroupNorm(8, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x):
        x, kept = self.first(x), []
        for block in self.down:
            kept.append(block(x))
            x = functional.avg_pool2d(kept[-1], 2)
        x = self.middle(x)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat([x, kept.pop()], 1))
        return self.last(functional.silu(self.norm(x)))


torch.manual_seed(0)
order = torch.channels_last if arguments.channels_last else torch.contiguous_format
model = UNet().cuda().to(memory_format=order)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
image = torch.randn(16, 3, 128, 128, device="cuda").to(memory_format=order)
target = torch.randn(16, 3, 128, 128, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = functional.mse_loss(model(image), target)
    loss.backward()
    optimizer.step()


for _ in range(10):
    step()
for _ in range(5):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        step()
    torch.cuda.synchronize()
    print(f"{arguments.lib}: {(time.perf_counter() - begin) / arguments.steps * 1e6:,.0f} us a step")
