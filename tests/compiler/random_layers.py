"""Random programs of layers: compiled they must give the bits that they give uncompiled.

A program of images has convolutions with norms, activations, residual sums and products by channel, in place and not;
one of rows has products, norms and attention. Views are changed in place, what was read is changed afterwards, tensors
come from and go to other threads. Every program runs three times, since plans and weights are kept.

Run as a script for many of them: mpy tests/compiler/random_layers.py 10000
"""

import random
import sys
import threading

import mica as torch
from random_programs import same

F = torch.nn.functional
SIZES = [
    (1, 8, 32, 32),
    (2, 16, 14, 14),
    (1, 32, 28, 28),
    (2, 12, 9, 17),
    (1, 64, 14, 14),
    (3, 4, 40, 24),
    (2, 24, 7, 7),
]
ROWS = [(1, 64), (1, 256), (7, 96), (2, 5, 64), (40, 128), (1, 1, 128), (3, 33), (2, 64, 48)]
ACTIVATIONS = [
    F.relu, F.silu, F.gelu, F.hardswish, F.relu6, torch.sigmoid, torch.tanh, F.leaky_relu, F.elu, F.mish, F.hardsigmoid,
]  # fmt: skip


class Program:
    """A program over some tensors, made by a seed: run(inputs) gives its results."""

    def __init__(self, seed):
        self.seed = seed
        rng = random.Random(seed)
        self.images = rng.random() < 0.6
        self.shape = rng.choice(SIZES if self.images else ROWS)
        self.length = rng.randint(4, 16)
        self.grad = rng.random() < 0.2
        self.last = self.images and rng.random() < 0.1
        self.weights = {}

    def inputs(self):
        generator = torch.Generator().manual_seed(self.seed)
        made = [torch.randn(self.shape, generator=generator) for _ in range(3)]
        if self.last:
            made = [each.to(memory_format=torch.channels_last) for each in made]
        if self.grad:
            made[0].requires_grad_()
        return made

    def weight(self, *shape, scale=None):
        """A weight of the program, made at its first use and the same in every run."""
        at = self.asked
        self.asked += 1
        if at not in self.weights:
            generator = torch.Generator().manual_seed(self.seed * 1000 + at)
            made = torch.randn(shape, generator=generator)
            self.weights[at] = made * (scale or max(1, made[0].numel()) ** -0.5)
        return self.weights[at]

    def run(self, inputs):
        rng = random.Random(self.seed + 1)
        self.asked = 0
        live = list(inputs)
        for _ in range(self.length):
            x = rng.choice(live[-3:] if rng.random() < 0.7 else live)
            y = self.image_step(rng, x, live) if self.images else self.row_step(rng, x, live)
            if y is not None:
                live.append(y)
            if len(live) > 7:
                live.pop(rng.randrange(3, len(live)))
        results = live[3:] + list(inputs)
        if self.grad:
            total = sum(each.square().mean() for each in results if each.requires_grad)
            results += torch.autograd.grad(total, [inputs[0]])
        return results

    def alike(self, rng, x, live):
        return rng.choice([each for each in live if each.shape == x.shape])

    def convolved(self, rng, x):
        channels = x.shape[1]
        kind = rng.choice(["one", "three", "three", "depthwise", "grouped", "five", "dilated", "wide", "transposed"])
        bias = self.weight(channels, scale=1) if rng.random() < 0.4 else None
        if kind == "one":
            return F.conv2d(x, self.weight(channels, channels, 1, 1), bias)
        if kind == "three":
            return F.conv2d(x, self.weight(channels, channels, 3, 3), bias, padding=1)
        if kind == "depthwise":
            k = rng.choice([3, 5, 7])
            return F.conv2d(x, self.weight(channels, 1, k, k), bias, padding=k // 2, groups=channels)
        if kind == "grouped":
            groups = rng.choice([2, 4])
            return F.conv2d(x, self.weight(channels, channels // groups, 3, 3), bias, padding=1, groups=groups)
        if kind == "five":
            return F.conv2d(x, self.weight(channels, channels, 5, 5), bias, padding=2)
        if kind == "dilated":
            return F.conv2d(x, self.weight(channels, channels, 3, 3), bias, padding=2, dilation=2)
        if kind == "wide":
            y = F.relu(F.conv2d(x, self.weight(channels * 4, channels, 1, 1)))
            return F.conv2d(y, self.weight(channels, channels * 4, 1, 1), bias)
        return F.conv_transpose2d(x, self.weight(channels, channels, 3, 3), bias, padding=1)

    def normed(self, rng, x):
        channels = x.shape[1]
        mean, var = self.weight(channels, scale=0.5), self.weight(channels, scale=0.5).abs() + 0.5
        weight, bias = self.weight(channels, scale=1), self.weight(channels, scale=1)
        kind = rng.random()
        if kind < 0.75:
            return F.batch_norm(x, mean, var, weight, bias)
        if kind < 0.85:
            return F.group_norm(x, 4, weight, bias)
        return x * weight.view(-1, 1, 1) + bias.view(-1, 1, 1)

    def image_step(self, rng, x, live):
        other = self.alike(rng, x, live)
        kind = rng.random()
        if kind < 0.3:  # a residual block, in one of the ways in which people write it
            y = self.normed(rng, self.convolved(rng, x)) if rng.random() < 0.7 else self.convolved(rng, x)
            return self.joined(rng, y, other)
        if kind < 0.42:
            y = self.normed(rng, self.convolved(rng, x))
            return rng.choice(ACTIVATIONS)(y)
        if kind < 0.5:  # squeeze and excitation
            y = rng.choice(ACTIVATIONS)(self.convolved(rng, x))
            pooled = y.mean((2, 3), keepdim=True) if rng.random() < 0.5 else F.adaptive_avg_pool2d(y, 1)
            gate = torch.sigmoid(F.conv2d(pooled, self.weight(y.shape[1], y.shape[1], 1, 1)))
            y = y * gate if rng.random() < 0.6 or y.requires_grad else y.mul_(gate)
            return F.conv2d(y, self.weight(y.shape[1], y.shape[1], 1, 1)) if rng.random() < 0.6 else y
        if kind < 0.58:
            return F.max_pool2d(x, 3, 1, 1) if rng.random() < 0.5 else F.avg_pool2d(x, 3, 1, 1)
        if kind < 0.64:  # channels by halves
            a, b = self.convolved(rng, x).chunk(2, 1)
            parts = [a * torch.sigmoid(b), b + other[:, : b.shape[1]]]
            rng.shuffle(parts)
            return torch.cat(parts, 1)
        if kind < 0.72:  # a chain of splits, as res2net has it
            parts = list(x.chunk(4, 1))
            weight = self.weight(parts[0].shape[1], parts[0].shape[1], 3, 3)
            y = parts[0]
            for i in range(1, 4):
                y = F.conv2d(y + parts[i] if rng.random() < 0.7 else parts[i], weight, padding=1)
                parts[i] = F.relu(y)
                y = parts[i]
            return torch.cat(parts, 1)
        if kind < 0.8:
            y = self.convolved(rng, x)
            return self.changed_later(rng, y, x, other)
        if kind < 0.86:
            return self.in_a_thread(rng, lambda: self.convolved(rng, x) + 1, x)
        if kind < 0.9:
            return F.interpolate(self.convolved(rng, x)[:, :, ::2, ::2], size=x.shape[2:], mode="nearest")
        if kind < 0.94:
            y = self.convolved(rng, x)
            return y.flatten(2).softmax(-1).view(y.shape) * other
        return x.flip(3) + other.transpose(0, 0) * 2

    def joined(self, rng, y, other):
        """The sum of what a block computed and of what came before it."""
        free = not y.requires_grad and not other.requires_grad
        ways = [
            lambda: F.relu(y + other),
            lambda: other + y,
            lambda: y * 0.5 + other,
            lambda: torch.add(other, y, alpha=2),
        ]
        if free:
            mine = (other * 1) if rng.random() < 0.6 else other.clone()
            ways += [
                lambda: y.add_(other),
                lambda: F.relu_(y.add_(other)),
                lambda: mine.add_(y),
                lambda: mine.mul_(y + 1),
            ]
            ways += [
                lambda: mine.add_(y).relu_() + y,
                lambda: torch.add(y, other, out=mine),
                lambda: mine.copy_(y).add_(1),
            ]
            ways += [lambda: (mine[:, 1:].add_(y[:, 1:]), mine)[1], lambda: self.of_both(mine, y)]
        return rng.choice(ways)()

    def of_both(self, mine, y):
        first = torch.sigmoid(mine) + y
        mine.sub_(y)
        return first * mine

    def changed_later(self, rng, y, x, other):
        """What a pending call reads, or a view of its result, changes before somebody asks for it."""
        if x.requires_grad or other.requires_grad or y.requires_grad:
            return y * 2
        ways = ["input", "view", "stride", "detached", "asked", "weight", "numpy"]
        way = rng.choice(ways)
        if way == "input":
            mine = x * 2
            z = torch.tanh(y + mine)
            mine.add_(1)
            return z + mine
        if way == "view":
            part = y[:, 1:]
            part.mul_(2)
            return y + 1
        if way == "stride":
            y[..., ::2].add_(1)
            return y
        if way == "detached":
            z = y.detach()
            z.relu_()
            return y + other
        if way == "asked":
            return y + 1 if float(y.sum()) > 0 else y - 1
        if way == "weight":
            factor = y.mean((0, 2, 3)) if y.dim() == 4 else y.mean(0)
            z = y * (factor.view(-1, 1, 1) if y.dim() == 4 else factor)
            factor.zero_()
            return z
        array = y.numpy()
        z = y * 2
        array *= 0.5
        return z + y

    def in_a_thread(self, rng, compute, x):
        """What another thread computes, compiled or not, of tensors that this one's recording may still have to write."""
        found, compiled = [], rng.random() < 0.5
        state = torch.is_grad_enabled()

        def work():
            with torch.set_grad_enabled(state):
                found.append((torch.compile(compute) if compiled and self.compiling else compute)())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0] * 2

    def row_step(self, rng, x, live):
        other = self.alike(rng, x, live)
        kind, n = rng.random(), x.shape[-1]
        if kind < 0.2:
            return F.linear(x, self.weight(n, n), self.weight(n, scale=1) if rng.random() < 0.5 else None)
        if kind < 0.35:
            y = F.rms_norm(x, (n,), self.weight(n, scale=1)) if rng.random() < 0.5 else self.rms(x)
            y = F.linear(y, self.weight(n, n))
            return self.joined_rows(rng, y, other)
        if kind < 0.5:
            y = F.layer_norm(x, (n,), self.weight(n, scale=1), self.weight(n, scale=1))
            y = F.linear(rng.choice(ACTIVATIONS)(F.linear(y, self.weight(2 * n, n))), self.weight(n, 2 * n))
            return self.joined_rows(rng, y, other)
        if kind < 0.6:
            return F.linear(F.silu(F.linear(x, self.weight(n, n))) * F.linear(x, self.weight(n, n)), self.weight(n, n))
        if kind < 0.7 and x.dim() == 3:
            q, k, v = (F.linear(x, self.weight(n, n)) for _ in range(3))
            if rng.random() < 0.5:
                return F.scaled_dot_product_attention(q, k, v, is_causal=rng.random() < 0.5)
            return (q @ k.transpose(1, 2) * n**-0.5).softmax(-1) @ v
        if kind < 0.78:
            return self.changed_later(rng, F.linear(x, self.weight(n, n)), x, other)
        if kind < 0.84:
            return self.in_a_thread(rng, lambda: F.linear(x, self.weight(n, n)) + x, x)
        if kind < 0.9 and x.dim() == 2:
            return torch.addmm(other, x, self.weight(n, n), beta=0.5)
        if kind < 0.95:
            a, b = F.linear(x, self.weight(2 * n, n)).chunk(2, -1)
            return a * F.gelu(b)
        return F.normalize(x, dim=-1) + F.softmax(other, -1)

    def rms(self, x):
        return x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt()

    def joined_rows(self, rng, y, other):
        if y.requires_grad or other.requires_grad:
            return other + y
        mine = other * 1
        ways = [lambda: mine.add_(y), lambda: y.add_(other), lambda: other + y, lambda: torch.add(y, other, out=mine)]
        return rng.choice([*ways, lambda: (mine[..., 1:].mul_(y[..., 1:]), mine)[1], lambda: self.of_both(mine, y)])()


def check(seed):
    program = Program(seed)
    with torch.set_grad_enabled(program.grad):
        program.compiling = False
        expected = program.run(program.inputs())
        program.compiling = True
        before = torch._C._set_least_recorded_elements(1 if seed % 3 == 0 else 4096)
        try:
            compiled = torch.compile(program.run)
            for time in range(3):
                found = compiled(program.inputs())
                assert len(expected) == len(found)
                for i, (a, b) in enumerate(zip(expected, found, strict=True)):
                    if not same(a, b):
                        raise AssertionError(
                            f"program {seed}, run {time}, result {i}: {tuple(a.shape)} differs when compiled"
                        )
        finally:
            torch._C._set_least_recorded_elements(before)


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for seed in range(first, first + int(sys.argv[1])):
        try:
            check(seed)
        except Exception as error:
            failed += 1
            print(f"program {seed}: {type(error).__name__}: {error}", flush=True)
        if seed % 1000 == 999:
            print(seed + 1, flush=True)
    sys.exit(failed > 0)
