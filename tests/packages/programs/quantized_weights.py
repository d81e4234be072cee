"""torchao: weights of 8, 4 and 3 bits and of 8-bit floats, alone and with activations of 8 bits, saved, loaded and trained; optimum-quanto's of 8 and hqq's of 4 bits."""

import copy
import io

import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from optimum.quanto import freeze, qint8, quantize
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerAxis,
    PerGroup,
    quantize_,
)
from torchao.quantization.qat import QATConfig

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 16)).eval()
x = torch.randn(6, 128)
with torch.no_grad():
    of_four_bits = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    for config in (
        Int8WeightOnlyConfig(),
        Int8DynamicActivationInt8WeightConfig(),
        IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerAxis(0)),
        of_four_bits,
        Float8WeightOnlyConfig(),
    ):
        model = copy.deepcopy(network)
        quantize_(model, config)
        print("torchao", type(config).__name__, model(x).abs().sum().item(), type(model[0].weight).__name__)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = copy.deepcopy(network)
        loaded.load_state_dict(torch.load(file), assign=True)
        print("loaded", torch.equal(loaded(x), model(x)))
    model = copy.deepcopy(network)
    with torch.enable_grad():
        quantize_(model, QATConfig(of_four_bits, step="prepare"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print("trained", loss.item())
    quantize_(model, QATConfig(of_four_bits, step="convert"))
    print("converted", model(x).abs().sum().item())
    model = copy.deepcopy(network)
    quantize(model, weights=qint8)
    print("quanto", model(x).abs().sum().item())
    freeze(model)
    print("quanto", model(x).abs().sum().item(), type(model[0].weight).__name__, sorted(model.state_dict()))
    options = BaseQuantizeConfig(nbits=4, group_size=64)
    layer = HQQLinear(copy.deepcopy(network[0]), options, compute_dtype=torch.float32, device="cpu")
    print("hqq", layer(x).abs().sum().item())
