"""Continues a text with a Llama whose weights are in a GGUF file, on the CPU.

    python examples/llama_gguf.py model.gguf --tokens 1 450 4996 --new 32

Weights of 4 and 8 bits stay as they are in the file (mica.load_gguf). Tokens are the numbers of the file's vocabulary; the
words of new ones are printed.
"""

import argparse
import functools
import time

import mica as torch
from mica.nn import functional as F


def product(weight):
    """The function that multiplies rows with a weight: one of few bits, or of plain numbers."""
    return weight.linear if hasattr(weight, "linear") else functools.partial(F.linear, weight=weight.float())


class Llama:
    """A Llama that computes the logits of the last token, and keeps the keys and values of all tokens before it."""

    def __init__(self, weights, room):
        data, self.weights = weights.metadata, weights
        if data.get("general.architecture") != "llama":
            raise ValueError(f"expected the architecture llama, got {data.get('general.architecture')!r}")
        self.layers, heads = data["llama.block_count"], data["llama.attention.head_count"]
        kv_heads = data.get("llama.attention.head_count_kv", heads)
        self.width = data["llama.embedding_length"]
        self.head = data.get("llama.rope.dimension_count", self.width // heads)
        self.eps = data["llama.attention.layer_norm_rms_epsilon"]
        self.words = weights["token_embd.weight"]
        self.output = product(weights.get("output.weight", self.words))
        base = data.get("llama.rope.freq_base", 10000.0)
        angle = torch.arange(room).float()[:, None] * base ** (-torch.arange(0, self.head, 2).float() / self.head)
        self.turns = torch.polar(torch.ones_like(angle), angle)[:, None]  # positions, heads, pairs
        self.keys, self.values = (
            [torch.zeros(1, kv_heads, room, self.head) for _ in range(self.layers)] for _ in range(2)
        )
        parts = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
        found = [[weights[f"blk.{i}.{part}.weight"] for part in parts] for i in range(self.layers)]
        # Norms stay tensors. Matrices become functions of what they are multiplied with.
        self.parts = [[w if w.dim() == 1 else product(w) for w in layer] for layer in found]
        self.shared_heads = kv_heads != heads

    def turned(self, x, turns):
        """Turns each pair of neighbouring numbers of a head by an angle that depends on the token's position."""
        tokens = x.shape[0]
        pairs = torch.view_as_complex(x.view(tokens, -1, self.head // 2, 2)) * turns
        return torch.view_as_real(pairs).view(1, tokens, -1, self.head).transpose(1, 2)

    def layer(self, i, x, at, turns):
        attn_norm, attn_q, attn_k, attn_v, attn_output, ffn_norm, ffn_gate, ffn_up, ffn_down = self.parts[i]
        tokens, keys, values = x.shape[0], self.keys[i], self.values[i]
        y = F.rms_norm(x, (self.width,), attn_norm, self.eps)
        q = self.turned(attn_q(y), turns)
        keys.narrow(2, at, tokens).copy_(self.turned(attn_k(y), turns))
        values.narrow(2, at, tokens).copy_(attn_v(y).view(1, tokens, -1, self.head).transpose(1, 2))
        keys, values = keys.narrow(2, 0, at + tokens), values.narrow(2, 0, at + tokens)
        y = F.scaled_dot_product_attention(q, keys, values, is_causal=tokens > 1, enable_gqa=self.shared_heads)
        x = attn_output(y.transpose(1, 2).reshape(tokens, self.width)).add_(x)
        y = F.rms_norm(x, (self.width,), ffn_norm, self.eps)
        return ffn_down(F.silu(ffn_gate(y)).mul_(ffn_up(y))).add_(x)

    def __call__(self, tokens, at):
        """Logits after `tokens`, the first of which is at position `at`. Only the first call may have several tokens."""
        x = F.embedding(tokens, self.words).float()
        turns = self.turns[at : at + tokens.shape[0]]
        for i in range(self.layers):
            x = self.layer(i, x, at, turns)
        x = F.rms_norm(x[-1:], (self.width,), self.weights["output_norm.weight"], self.eps)
        return self.output(x)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1])
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    with torch.inference_mode():
        start = time.perf_counter()
        weights = torch.load_gguf(args.file)
        model = Llama(weights, len(args.tokens) + args.new)
        print(f"read in {time.perf_counter() - start:.1f} s")
        start = time.perf_counter()
        token = model(torch.tensor(args.tokens), 0).argmax().view(1)
        middle = time.perf_counter()
        new = [token.item()]
        for i in range(args.new - 1):
            token = model(token, len(args.tokens) + i).argmax().view(1)
            new.append(token.item())
        end = time.perf_counter()
    words = weights.metadata.get("tokenizer.ggml.tokens")
    print(" ".join(words[i] if words else str(i) for i in new).replace("\u2581", ""))
    print(f"prompt {len(args.tokens) / (middle - start):.1f} tokens/s", end="")
    print(f", new {(args.new - 1) / (end - middle):.1f} tokens/s" if args.new > 1 else "")


if __name__ == "__main__":
    main()
