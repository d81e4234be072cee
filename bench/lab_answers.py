"""How quickly the Lab answers: median, 95th percentile and worst of every instrument, in milliseconds.

usage: python bench/lab_answers.py [--static build/lab] [--questions 100] [--rounds 5] [--assert]

Questions go over HTTP to `mica lab`, as the page's do, or with --static to the engine in the page, in Chromium. Each is
another one: sizes, numbers and operations change as under a hand that moves a slider. They are asked in several rounds,
and the round with the lowest 95th percentile is shown: what else a machine does makes any of them longer. With --static the first picture is
timed too, in a browser that has never seen the page and in one that has. With --assert the status is 1 if a 95th
percentile is 20 ms or more, or a first picture takes longer than 2 s (cold) or 0.5 s (warm).
"""

from __future__ import annotations

import argparse
import functools
import http.client
import http.server
import itertools
import json
import shutil
import sys
import threading
import time
from urllib.parse import urlsplit

BAR = 20.0
FIRST = {"cold": 2000.0, "warm": 500.0}


def chain(i: int) -> list[dict]:
    return [
        {"op": "arange", "args": {"end": 12 * (1 + i % 8)}},
        {"op": "reshape", "on": [0], "args": {"shape": [3, -1]}},
        {"op": "t", "on": [1]},
        {
            "op": ("reshape", "contiguous", "clone")[i % 3],
            "on": [2],
            **({"args": {"shape": [-1]}} if i % 3 == 0 else {}),
        },
    ]


CURVES = ("sine", "tanh")
# Instrument -> the i-th question. Instruments that measure this machine are left out: they take the time that they
# measure.
QUESTIONS = {
    "fit": lambda i: {"parameters": 1e9 * (1 + i % 70), "layers": 16 + i % 64, "width": 4096, "heads": 32, "length": 128 * (1 + i % 32)},
    "plan": lambda i: {"parameters": 1e9 * (1 + i % 70), "devices": 1 + i % 8},
    "calculator": lambda i: {"shape": [1 + i, 3, 224, 224]},
    "strides": lambda i: {"shape": [3, 4], "strides": [4, 1], "offset": i % 3, "elements": 12 + i % 240},
    "views": lambda i: {"steps": chain(i), "writes": [{"tensor": 1, "element": i % 12, "value": i, "after": 4}]},
    "broadcasting": lambda i: {"shapes": [[1 + i % 8, 1], [1, 1 + i % 6]]},
    "precision": lambda i: {"curve": CURVES[i % 2], "amplitude": 700 * (i + 1), "dtypes": ["float32", "float16", "bfloat16", "int8"]},
    "bits": lambda i: {"dtype": ("float16", "bfloat16", "float32")[i % 3], "value": 3.5 * i},
    "transfer": lambda i: {"n": 16 * (1 + i % 256), "measure": False},
    "playground": lambda i: {"steps": chain(i)},
    "graph": lambda i: {"steps": [{"op": "randn", "args": {"shape": [3 + i % 9, 4]}}, {"op": "requires_grad_", "on": [0]}, {"op": "exp", "on": [1]}, {"op": "mean", "on": [2]}]},
    "quantize": lambda i: {"bits": 2 + i % 7, "outlier": i % 20},
    "sparse": lambda i: {"n": 8 + i % 1000, "layouts": True},
    "einsum": lambda i: {"equation": ("ik,kj->ij", "bik,bkj->bij", "b n (head d) -> b head n d")[i % 3], "sizes": {"i": 1 + i % 12}},
    "quiz": lambda i: {"number": i},
}  # fmt: skip


def over_http(count: int, rounds: int) -> dict[str, list[float]]:
    import mica

    server = mica.lab.serve()
    where = urlsplit(server.url)
    line = http.client.HTTPConnection(where.hostname, where.port)
    times = {}
    for _, (name, question) in itertools.product(range(rounds), QUESTIONS.items()):
        times.setdefault(name, [])
        for i in range(-3, count):  # three to warm up
            began = time.perf_counter()
            line.request(
                "POST", f"{where.path}api/{name}", json.dumps(question(max(i, 0))), {"Content-Type": "application/json"}
            )
            answer = json.loads(line.getresponse().read())
            if i >= 0:
                times[name].append((time.perf_counter() - began) * 1e3)
            assert answer["ok"], (name, answer)
    server.stop()
    return times


ASK = """async ([name, questions]) => {
  const { carry } = await import("./transport.js");
  const times = [], never = new AbortController().signal;
  for (const question of questions) {
    const text = JSON.stringify(question), began = performance.now(), [status, told] = await carry(name, text, never);
    times.push(performance.now() - began);
    if (status !== 200 || !JSON.parse(told).ok) throw new Error(`${name}: ${told}`);
  }
  return times.slice(3);
}"""


def first_pictures(browser, address: str) -> dict[str, float]:
    """Milliseconds until the stride explorer has drawn what the engine answered: the best of several visits."""

    def visit(page) -> float:
        page.goto("about:blank")
        page.goto(address + "index.html#c")
        page.wait_for_selector(".cell")
        return page.evaluate("performance.now()")

    cold, warm = [], []
    for _ in range(4):
        context = browser.new_context()
        page = context.new_page()
        cold.append(visit(page))
        warm += [visit(page) for _ in range(3)]
        context.close()
    return {"cold": min(cold), "warm": min(warm)}


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def in_the_page(folder: str, count: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    from playwright.sync_api import sync_playwright

    files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=folder))
    threading.Thread(target=files.serve_forever, daemon=True).start()
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        address = f"http://127.0.0.1:{files.server_port}/"
        first = first_pictures(browser, address)
        page = browser.new_page()
        page.goto(address + "mark.svg")  # a page of the same place, and nothing else at work
        page.goto(address + "index.html#m")
        times = {name: [] for name in QUESTIONS}
        for _, (name, question) in itertools.product(range(rounds), QUESTIONS.items()):
            times[name] += page.evaluate(ASK, [name, [question(max(i, 0)) for i in range(-3, count)]])
        browser.close()
    files.shutdown()
    return times, first


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", metavar="FOLDER", help="the Lab without a server, as `make lab-wasm` leaves it")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--assert", dest="holds", action="store_true", help="fail where a 95th percentile is too long")
    arguments = parser.parse_args()
    first = {}
    if arguments.static:
        times, first = in_the_page(arguments.static, arguments.questions, arguments.rounds)
    else:
        times = over_http(arguments.questions, arguments.rounds)
    print(
        f"{'instrument':14} {'median':>8} {'p95':>8} {'worst':>8}   ms, {arguments.questions} questions, best of {arguments.rounds} rounds"
    )
    late = []
    for name, row in times.items():
        count = arguments.questions
        at95 = min(count - 1, int(0.95 * count))
        row = min((sorted(row[i : i + count]) for i in range(0, len(row), count)), key=lambda r: r[at95])
        p95 = row[at95]
        late += [name] * (p95 >= BAR)
        print(f"{name:14} {row[len(row) // 2]:8.2f} {p95:8.2f} {row[-1]:8.2f}")
    slow = [kind for kind, ms in first.items() if ms >= FIRST[kind]]
    for kind, ms in first.items():
        print(f"first picture, {kind}: {ms:.0f} ms")
    if late:
        print(f"over {BAR:.0f} ms: {', '.join(late)}")
    return int(bool(late or slow) and arguments.holds)


if __name__ == "__main__":
    sys.exit(main())
