"""torchinfo: tables of a model's layers and operations; torchsummary, thop, ptflops and torch's own counter beside it."""

import thop
import torch
import torchinfo
import torchsummary
import torchvision
from ptflops import get_model_complexity_info
from torch.utils.flop_counter import FlopCounterMode

model = torchvision.models.resnet18().eval()
columns = ("input_size", "output_size", "num_params", "kernel_size", "mult_adds", "trainable")
print(torchinfo.summary(model, (1, 3, 64, 64), verbose=0, depth=2, col_names=columns))
torchsummary.summary(model, (3, 64, 64), device="cpu")
print("thop", thop.profile(model, (torch.randn(1, 3, 64, 64),), verbose=False))
options = {"as_strings": False, "print_per_layer_stat": False, "backend": "pytorch"}
print("ptflops", get_model_complexity_info(torchvision.models.resnet18().eval(), (3, 64, 64), **options))
with FlopCounterMode(display=False) as counter:
    torchvision.models.resnet18()(torch.randn(2, 3, 64, 64)).sum().backward()
print("counted", counter.get_total_flops())
