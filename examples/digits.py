"""A convolutional network that learns to read digits. The digits are drawn here: seven-segment strokes, shifted, slanted, noisy."""

import argparse

import torch
from progress import Progress
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

# The strokes of a digit: top, upper left, upper right, middle, lower left, lower right, bottom.
SEGMENTS = [
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
]
ENDS = [(0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 1, 1), (1, 0, 1, 1), (1, 0, 2, 0), (1, 1, 2, 1), (2, 0, 2, 1)]


def draw(digits, size=20):
    """Images of digits, each with its own place, size, slant and noise."""
    count = len(digits)
    rows = torch.arange(size, dtype=torch.float32).view(1, size, 1)
    columns = torch.arange(size, dtype=torch.float32).view(1, 1, size)

    def random(low, high):
        return low + (high - low) * torch.rand(count, 1, 1)

    top, left = random(2, 5), random(4, 8)
    height, width, slant = random(4.5, 6.5), random(5, 7.5), random(-0.2, 0.2)
    lit = torch.tensor([[float(c) for c in SEGMENTS[d]] for d in range(10)])[digits]
    image = torch.zeros(count, size, size)
    for segment, (r0, c0, r1, c1) in enumerate(ENDS):
        y0, y1 = top + r0 * height, top + r1 * height
        x0, x1 = left + c0 * width - slant * (y0 - top), left + c1 * width - slant * (y1 - top)
        # The distance of every pixel to the stroke.
        dy, dx = y1 - y0, x1 - x0
        along = (((rows - y0) * dy + (columns - x0) * dx) / (dy * dy + dx * dx)).clamp(0, 1)
        distance = ((rows - y0 - along * dy) ** 2 + (columns - x0 - along * dx) ** 2).sqrt()
        stroke = (1.6 - distance).clamp(0, 1) * lit[:, segment].view(-1, 1, 1)
        image = torch.maximum(image, stroke)
    return (image + 0.25 * torch.randn_like(image)).unsqueeze(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 5 * 5, 10))

    def forward(self, x):
        return self.classify(self.features(x))


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    digits = torch.randint(10, (options.images,))
    known, unseen = random_split(TensorDataset(draw(digits), digits), [0.8, 0.2])
    loader = DataLoader(known, batch_size=options.batch, shuffle=True, num_workers=options.workers)
    unseen = DataLoader(unseen, batch_size=256)

    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=options.steps)
    progress = Progress(options.steps, "image", options.batch)
    step = 0
    while step < options.steps:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            progress.update(step, loss.item())
            if step == options.steps:
                break
    progress.close()
    print(f"reads {accuracy(model, unseen):.1%} of digits that it has not seen")
    return progress.losses


if __name__ == "__main__":
    main()
