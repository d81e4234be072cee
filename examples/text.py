"""The tales as numbers: characters, batches, and a model's own continuation."""

from pathlib import Path

import torch

TALES = Path(__file__).parent / "data" / "tales.txt"


class Text:
    """A text as a tensor of characters."""

    def __init__(self, path=TALES):
        text = Path(path).read_text()
        self.characters = sorted(set(text))
        self.number = {c: i for i, c in enumerate(self.characters)}
        self.data = self.encode(text)

    def encode(self, text):
        return torch.tensor([self.number[c] for c in text])

    def decode(self, numbers):
        return "".join(self.characters[int(n)] for n in numbers)

    def batch(self, count, length):
        """Random passages, and what follows each of their characters."""
        starts = torch.randint(len(self.data) - length - 1, (count, 1))
        passages = self.data[starts + torch.arange(length + 1)]
        return passages[:, :-1], passages[:, 1:]


def choose(logits, temperature=0.8):
    """One of the likely next characters."""
    return torch.multinomial(torch.softmax(logits / temperature, -1), 1)
