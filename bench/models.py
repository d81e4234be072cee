"""Models from transformers and timm, with random weights, side by side with torch: a step of training and a forward pass.

    models.py --mica PYTHON --torch PYTHON --packages FOLDER [--threads N] [--cpu-time] [--only PATTERN]

PYTHON of --mica has mica, that of --torch has torch; both find the packages in FOLDER, or have them. The two take turns on
every row, the better time of each counting. A figure is torch's time over Mica's.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time


def language_model(torch, config):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config)
    tokens = torch.randint(0, config.vocab_size, (2, 128))
    return model, lambda: model(tokens, labels=tokens).loss, lambda: model(tokens).logits


def gpt2(torch):
    from transformers import GPT2Config

    return language_model(
        torch, GPT2Config(n_layer=6, n_embd=384, n_head=6, vocab_size=8192, bos_token_id=0, eos_token_id=0)
    )


def llama(torch):
    from transformers import LlamaConfig

    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "vocab_size": 4096}
    return language_model(torch, LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4))


def image_model(name):
    def make(torch):
        import timm

        model = timm.create_model(name, num_classes=10)
        images, labels = torch.randn(4, 3, 224, 224), torch.randint(0, 10, (4,))
        return model, lambda: torch.nn.functional.cross_entropy(model(images), labels), lambda: model(images)

    return make


MODELS = {
    "gpt2": gpt2,
    "llama": llama,
    "vit_tiny": image_model("vit_tiny_patch16_224"),
    "resnet18": image_model("resnet18"),
    "efficientnet_b0": image_model("efficientnet_b0"),
}
ROWS = [f"{model}/{what}" for model in MODELS for what in ("train", "forward")]


def row(torch, name):
    kind, what = name.split("/")
    torch.manual_seed(0)
    model, loss, output = MODELS[kind](torch)
    if what == "forward":
        model.eval()

        def forward():
            with torch.no_grad():
                output()

        return forward
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def serve(given):
    """Answers row names on standard input with their times, one JSON value a line."""
    say, sys.stdout = sys.stdout, sys.stderr
    import torch

    if (
        given.serve == "torch"
    ):  # torchvision's library may be built for another; its Python side asks for these operators
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.set_num_threads(given.threads)
    clock = time.process_time if given.cpu_time else time.perf_counter
    ready = {}
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in ready:
                ready.clear()
                ready[name] = row(torch, name)
                ready[name]()
            times = []
            for _ in range(given.repeats):
                start = clock()
                ready[name]()
                times.append(clock() - start)
            answer = min(times)
        except Exception as e:
            answer = f"{type(e).__name__}: {e}"[:300]
        print(json.dumps(answer), file=say, flush=True)


def worker(side, command, given):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), given.packages)))
    options = ["--serve", side, "--threads", str(given.threads), "--repeats", str(given.repeats)]
    options += ["--cpu-time"] if given.cpu_time else []
    return subprocess.Popen(
        [*command, __file__, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def ask(process, name):
    print(name, file=process.stdin, flush=True)
    line = process.stdout.readline()
    return json.loads(line) if line else f"the process ended with {process.wait()}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mica", default=sys.executable)
    p.add_argument("--torch", default=sys.executable)
    p.add_argument("--packages", default="")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeats", type=int, default=3, help="calls in a turn")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--only", default="", help="a regular expression")
    p.add_argument(
        "--cpu-time", action="store_true", help="the process's time in the place of the clock's, for one thread"
    )
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--serve", help=argparse.SUPPRESS)
    given = p.parse_args()
    if given.serve:
        return serve(given)
    sides = (
        worker("mica", [given.mica, "-m", "mica", "run"], given),
        worker("torch", [given.torch], given),
    )
    lines, ratios = [], []
    for name in ROWS:
        if not re.search(given.only, name):
            continue
        best = [float("inf")] * 2
        for _ in range(given.turns):
            answers = [ask(side, name) for side in sides]
            errors = [each for each in answers if isinstance(each, str)]
            if errors:
                break
            best = [min(pair) for pair in zip(best, answers, strict=True)]
        if errors:
            lines.append(f"{name:24s} {errors[0]}")
        else:
            ratios.append(best[1] / best[0])
            lines.append(f"{name:24s} {best[0] * 1e3:9.2f} ms  {best[1] * 1e3:9.2f} ms  {ratios[-1]:6.2f}x")
        print(lines[-1], flush=True)
    if ratios:
        print(f"mean {statistics.geometric_mean(ratios):.2f}x, worst {min(ratios):.2f}x")
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
