"""ResNet-50, one training step under bfloat16 autocast: python bench/cuda_resnet.py [--lib mica] [--versus torch].

The model stands here in plain modules, so that both libraries run the same lines. Milliseconds, the median of the steps;
two libraries take turns in one process.
"""

import argparse
import importlib
import statistics
import time


def resnet50(lib, classes=1000):
    """The model of He and others with the stride in the 3 x 3 convolution, as torchvision has it."""
    nn = lib.nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            outputs = 4 * width
            self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    stages, inputs = [], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        layers = []
        for i in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
        stages.append(nn.Sequential(*layers))
    stem = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    )
    return nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))


def training_step(lib, batch):
    """A function that runs one step, channels last, with SGD and momentum."""
    lib.manual_seed(0)
    model = resnet50(lib).to("cuda", memory_format=lib.channels_last)
    images = lib.rand(batch, 3, 224, 224, device="cuda").contiguous(memory_format=lib.channels_last)
    labels = lib.randint(0, 1000, (batch,), device="cuda")
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loss_of = lib.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with lib.autocast("cuda", dtype=lib.bfloat16):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib", default="mica")
    parser.add_argument("--versus", default="")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    libraries = {
        name: importlib.import_module(name) for name in (arguments.versus, arguments.lib) if name
    }  # torch first: it does not look for libraries that are open already
    steps = {name: training_step(lib, arguments.batch) for name, lib in libraries.items()}
    times = {name: [] for name in libraries}
    losses = {name: [float(step()) for _ in range(3)] for name, step in steps.items()}
    for _ in range(arguments.steps):
        for name, lib in libraries.items():
            lib.cuda.synchronize()
            start = time.perf_counter()
            steps[name]()
            lib.cuda.synchronize()
            times[name].append((time.perf_counter() - start) * 1e3)
    for name, lib in libraries.items():
        peak = lib.cuda.max_memory_allocated() / 2**20
        print(
            f"{name:6} {statistics.median(times[name]):9.2f} ms (best {min(times[name]):.2f}), peak {peak:.0f} MiB, "
            f"first losses {[round(x, 4) for x in losses[name]]}, last {float(steps[name]()):.4f}"
        )
    if len(times) == 2:
        mine, theirs = (statistics.median(times[n]) for n in (arguments.lib, arguments.versus))
        print(f"ratio {theirs / mine:.3f}x")


if __name__ == "__main__":
    main()
