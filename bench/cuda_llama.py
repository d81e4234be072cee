"""A Llama of 1.1 billion parameters (22 layers) in bfloat16 on CUDA, one token at a time: milliseconds a token.

mica run bench/cuda_llama.py loop               # a loop of one's own over a model of one's own
mica run bench/cuda_llama.py generate           # `generate` of transformers with a static cache
mica run bench/cuda_llama.py loop --spans       # and which kernels take how long
mica run bench/cuda_llama.py generate --host    # and where Python's time goes, call by call

`python` instead of `mica run` measures torch.
"""

import argparse
import itertools
import time

import torch

WIDTH, INNER, LAYERS, HEADS, KEY_HEADS, VOCABULARY = 2048, 5632, 22, 32, 4, 32000


def own_model():
    nn, functional = torch.nn, torch.nn.functional
    head = WIDTH // HEADS

    class Layer(nn.Module):
        def __init__(self, length):
            super().__init__()
            self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
            self.q = nn.Linear(WIDTH, WIDTH, bias=False)
            self.k = nn.Linear(WIDTH, KEY_HEADS * head, bias=False)
            self.v = nn.Linear(WIDTH, KEY_HEADS * head, bias=False)
            self.o = nn.Linear(WIDTH, WIDTH, bias=False)
            self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
            self.down = nn.Linear(INNER, WIDTH, bias=False)
            self.register_buffer("keys", torch.zeros(1, KEY_HEADS, length, head))
            self.register_buffer("values", torch.zeros(1, KEY_HEADS, length, head))

        def turn(self, x, cos, sin):
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat([-b, a], -1) * sin

        def forward(self, x, at, cos, sin, mask):
            h = self.norm_1(x)
            q = self.turn(self.q(h).view(1, 1, HEADS, head).transpose(1, 2), cos, sin)
            k = self.turn(self.k(h).view(1, 1, KEY_HEADS, head).transpose(1, 2), cos, sin)
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, self.v(h).view(1, 1, KEY_HEADS, head).transpose(1, 2))
            a = functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
            x = x + self.o(a.transpose(1, 2).reshape(1, 1, WIDTH))
            h = self.norm_2(x)
            return x + self.down(functional.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self, length):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.layers = nn.ModuleList(Layer(length) for _ in range(LAYERS))
            self.norm, self.head = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False)
            angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())
            self.register_buffer("seen", torch.ones(length, length, dtype=torch.bool).tril())

        def forward(self, token, at):
            x, cos, sin, mask = self.tokens(token), self.cos[at], self.sin[at], self.seen[at][None, None]
            for layer in self.layers:
                x = layer(x, at, cos, sin, mask)
            return self.head(self.norm(x))[:, -1].argmax(-1, keepdim=True)

    return Llama


def loop(arguments):
    length = 512
    with torch.device("cuda"):
        model = own_model()(length).to(torch.bfloat16).eval()
    model.seen = model.seen.bool()
    places = torch.arange(length, device="cuda")[:, None]

    def tokens(step, count):
        token, found = torch.tensor([[1]], device="cuda"), []
        for i in range(count):
            token = step(token, places[i])
            found.append(token)
        return torch.cat(found, 1).tolist()

    with torch.no_grad():
        compiled = torch.compile(model, mode="reduce-overhead")
        kept = None
        for name, step in (("eager", model), ("replayed", compiled)):
            tokens(step, 20)
            times = []
            for _ in range(5):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                found = tokens(step, 200)
                times.append((time.perf_counter() - begin) / 200 * 1e3)
            print(f"loop, {name}: {min(times):.3f} to {max(times):.3f} ms a token", flush=True)
            if kept is not None and kept != found:
                print("OTHER TOKENS than eagerly")
            kept = found
        if arguments.spans:
            token = torch.tensor([[1]], device="cuda")
            show_spans(lambda: compiled(token, places[9]))


def generate(arguments):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prompt = torch.randint(0, VOCABULARY, (1, 32), device="cuda")
    stamps = []

    def run(count, **more):
        with torch.no_grad():
            return model.generate(prompt, max_new_tokens=count, do_sample=False, pad_token_id=0, **more)

    def timed(name, count, **more):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        found = run(count, **more)
        torch.cuda.synchronize()
        count = found.shape[1] - prompt.shape[1]
        print(f"generate, {name}: {(time.perf_counter() - begin) / count * 1e3:.3f} ms a token of {count}", flush=True)
        return found

    class Stamps:
        def put(self, value):
            stamps.append(time.perf_counter())

        def end(self):
            pass

    eager = timed("a growing cache", 32)
    for _ in range(3):
        found = timed("a static cache, compiled", 128, cache_implementation="static")
    print("the same tokens:", eager.tolist()[0] == found.tolist()[0][: eager.shape[1]])
    run(128, cache_implementation="static", streamer=Stamps())
    steps = [(b - a) * 1e3 for a, b in itertools.pairwise(stamps)]
    print(
        "ms of each token:", " ".join(f"{s:.2f}" for s in steps[:12]), "...", " ".join(f"{s:.2f}" for s in steps[-4:])
    )
    if arguments.host:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        profile.enable()
        run(128, cache_implementation="static")
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        pstats.Stats(profile).sort_stats("cumtime").print_stats(60)
    if arguments.spans:
        show_spans(lambda: run(40, cache_implementation="static"), 1)


def show_spans(run, times=4):
    from cuda_spans import kernels, report

    found = kernels(run, times)
    report(found)
    for name, span, own in found:
        print(f"{span:8.2f} {own:8.2f}  {name[:110]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=["loop", "generate"])
    parser.add_argument("--spans", action="store_true")
    parser.add_argument("--host", action="store_true")
    arguments = parser.parse_args()
    {"loop": loop, "generate": generate}[arguments.program](arguments)


if __name__ == "__main__":
    main()
