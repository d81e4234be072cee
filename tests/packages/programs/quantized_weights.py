"""torchao: weights of 8 bits, alone and with activations of 8 bits; optimum-quanto's of 8 and hqq's of 4 bits."""

import copy

import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from optimum.quanto import freeze, qint8, quantize
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 16)).eval()
x = torch.randn(6, 128)
with torch.no_grad():
    for kind in (Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig):
        model = copy.deepcopy(network)
        quantize_(model, kind())
        print("torchao", kind.__name__, model(x).abs().sum().item(), type(model[0].weight).__name__)
    model = copy.deepcopy(network)
    quantize(model, weights=qint8)
    print("quanto", model(x).abs().sum().item())
    freeze(model)
    print("quanto", model(x).abs().sum().item(), type(model[0].weight).__name__, sorted(model.state_dict()))
    options = BaseQuantizeConfig(nbits=4, group_size=64)
    layer = HQQLinear(copy.deepcopy(network[0]), options, compute_dtype=torch.float32, device="cpu")
    print("hqq", layer(x).abs().sum().item())
