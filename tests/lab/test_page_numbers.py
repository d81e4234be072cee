"""What the page shows, against the engine asked in Python: each test is a place where the page once said otherwise."""

import math

import mica
import pytest


def seen(page, selector):
    return page.locator(selector).first.text_content()


# ---- a


def test_another_model_leaves_nothing_of_the_last_one(page, tmp_path):
    model = mica.nn.Sequential(mica.nn.Linear(1000, 2000), mica.nn.ReLU(), mica.nn.Linear(2000, 1000))
    mica.save(model.state_dict(), tmp_path / "mlp.pt")
    held = sum(p.nbytes for p in model.parameters())
    page.visit("a")
    page.wait_for_selector("[data-format=float32]")
    page.set_input_files("input[type=file]", tmp_path / "mlp.pt")
    row = page.wait_for_selector("[data-format='as in the file']")
    assert int(row.get_attribute("data-weights")) == held
    assert held < int(row.get_attribute("data-bytes")) < 1.01 * held
    page.get_by_label("Parameters, millions", exact=True).fill("4")
    page.until("document.querySelector('#model-shape').textContent.includes('as they are usually built')")
    # A model of 4 million with a cache of 2048 tokens; not the 2.4 GB of Llama's 32 layers.
    assert float(page.locator("[data-format=float32]").get_attribute("data-bytes")) < 0.2e9


def test_a_file_of_bfloat16_is_counted_by_its_dtype(page, tmp_path):
    mica.save({"w": mica.zeros(2000, 2000, dtype=mica.bfloat16)}, tmp_path / "m.pt")
    page.visit("a")
    page.wait_for_selector("[data-format=float32]")
    page.set_input_files("input[type=file]", tmp_path / "m.pt")
    page.wait_for_selector("#status:has-text('4.00 million parameters, 8.00 MB')")
    page.wait_for_selector("[data-format='as in the file'][data-weights='8000000']")
    assert page.locator("[data-format=float32]").get_attribute("data-weights") == "16000000"


def test_a_gpu_of_ones_own_and_seventy_billion(page):
    page.visit("a")
    page.wait_for_selector("[data-format=float32]")
    page.get_by_label("Memory of the GPU, GB", exact=True).fill("48")
    page.wait_for_selector("text.limit:has-text('48 GB')")
    page.wait_for_selector("[data-format=float32][data-fits=true]")
    page.get_by_role("button", name="Llama-2 70B").click()
    page.wait_for_selector("[data-format=float32] .torn")  # torn off, and its number says how far it goes
    # int4 fits into 48 GB, and its bar is long enough to read.
    assert page.locator("[data-format=int4] rect").first.bounding_box()["width"] > 60
    page.get_by_role("button", name="ViT-B/16").click()
    page.until("document.querySelector('#model-shape').textContent.includes('width 768')")
    assert page.get_by_label("Length, tokens", exact=True).input_value() == "197"
    page.get_by_text("Training", exact=True).click()
    page.wait_for_selector("[data-part='float32 master copy']")
    assert page.get_by_text("FlashAttention").is_visible()


# ---- b


def test_one_bar_for_a_width_and_one_unit(page):
    page.visit("b")
    page.wait_for_selector("[data-width='16']")
    first = [g.get_attribute("data-dtype") for g in page.locator("svg [data-dtype]").all()]
    assert first == ["float32", "float16", "bfloat16", "int8"]
    x = mica.empty(32, 3, 224, 224, device="meta")
    assert f"{x.nbytes / 1e6:.2f} MB" in seen(page, "[data-width='4']")
    assert "MiB" not in page.locator("dl.facts").inner_text()


# ---- c


def test_three_dimensions_are_edited(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    page.get_by_label("Add a dimension to Shape").click()
    real = mica.arange(24).reshape(3, 4, 2)
    page.wait_for_selector(f"h2:has-text('shape {tuple(real.shape)}, strides {real.stride()}')")
    assert page.get_by_role("group", name="Strides").locator("input").count() == 3
    page.get_by_label("Strides 2").fill("0")
    page.wait_for_selector("h2:has-text('strides (8, 2, 0)')")
    values = [t.text_content() for t in page.locator(".cell text:first-of-type").all()]
    assert sorted(map(int, values)) == sorted(real.as_strided((3, 4, 2), (8, 2, 0)).reshape(-1).tolist())


def test_places_and_the_tape_say_what_is_missing(page):
    page.visit("c", {"shape": [4, 20], "strides": [20, 1], "offset": 0, "elements": 12, "dtype": "float32"})
    page.wait_for_selector(".cell")
    facts = page.locator("dl.facts").inner_text()
    assert "12 of 12" in facts and "68" in facts
    assert "3 places after 76" in page.locator("figcaption").last.inner_text()


def test_the_code_has_the_dtype_that_was_chosen(page):
    page.visit("c")
    page.wait_for_selector(".codeline")
    page.get_by_label("dtype", exact=True).select_option("int8")
    page.wait_for_selector(".codeline:has-text('mica.int8')")
    made = eval(page.locator("[data-language=Python] code").inner_text())
    assert made.dtype == mica.int8
    assert f"{made.nbytes} B" in page.locator("dl.facts").inner_text()


def test_arrows_stay_inside_and_a_thread_leads_to_the_tape(page):
    page.visit("c")
    page.wait_for_selector(".cell")
    page.locator(".cell[data-place='9']").click()
    for key in ("ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    readout = page.locator("#readout")
    assert "x[2, 1]" in readout.inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "x[2, 3]" in readout.inner_text() and "holds 11" in readout.inner_text()
    page.get_by_role("button", name="x.t()", exact=True).click()
    page.wait_for_selector("h2:has-text('strides (1, 4)')")
    page.locator(".cell[data-place='6']").click()
    page.wait_for_timeout(600)  # the cells have arrived
    ends = page.evaluate("""() => {
        const path = document.querySelector('.thread path'), box = document.querySelector('.thread').getBoundingClientRect();
        const at = (l) => { const p = path.getPointAtLength(l); return [p.x + box.x, p.y + box.y]; };
        return [at(0), at(path.getTotalLength())];
    }""")
    for (x, y), selector in zip(ends, (".cell.pick rect", ".place.here rect"), strict=True):
        box = page.locator(selector).bounding_box()
        assert box["x"] <= x <= box["x"] + box["width"] and box["y"] - 2 <= y <= box["y"] + box["height"] + 2


def test_layouts_are_one_click(page):
    page.visit("c", {"shape": [1, 2, 3, 4], "strides": [24, 12, 4, 1], "offset": 0, "elements": 24, "dtype": "float32"})
    page.wait_for_selector(".cell")
    page.get_by_role("button", name="channels last").click()
    real = mica.empty(1, 2, 3, 4).contiguous(memory_format=mica.channels_last)
    page.wait_for_selector(f"h2:has-text('strides {real.stride()}')")
    page.get_by_role("button", name="column-major").click()
    page.wait_for_selector("h2:has-text('strides (1, 1, 2, 6)')")
    page.get_by_role("button", name="row-major").click()
    page.wait_for_selector(f"h2:has-text('strides {mica.empty(1, 2, 3, 4).stride()}')")


# ---- d


def test_what_was_written_is_kept_and_has_a_colour_of_its_own(page):
    page.visit("d")
    page.wait_for_selector("[data-step='1']")
    page.get_by_label("Number to write").fill("-2.5")
    page.get_by_label("write into x1, element 5", exact=True).click()
    page.wait_for_selector(".value.changed")
    page.get_by_role("button", name="clone()", exact=True).click()
    page.wait_for_selector("[data-step='2']")
    x = mica.arange(12.0)
    x[5] = -2.5
    for i in range(3):
        shown = [float(b.inner_text().replace("\u2212", "-")) for b in page.locator(f"[data-tensor='{i}']").all()]
        assert shown == x.tolist()
    colours = page.evaluate(
        "[...'changed owns'.split(' ')].map((c) => getComputedStyle(document.querySelector(`.value.${c}`)).backgroundColor)"
    )
    assert len(set(colours)) == 2
    assert page.locator("[data-tensor='2'].changed").count() == 0  # copied with it, not changed by it


def test_three_dimensions_are_sheets_and_lists_copy(page):
    steps = [
        {"op": "arange", "on": [], "args": {"end": 24}},
        {"op": "reshape", "on": [0], "args": {"shape": [2, 3, 4]}},
    ]
    page.visit("d", {"steps": steps})
    page.wait_for_selector("[data-step='1'] .leaf")
    assert page.locator("[data-step='1'] .leaf").count() == 2
    page.get_by_role("button", name="x[::2]", exact=True).click()
    page.wait_for_selector("[data-step='2'][data-shares='true']")
    page.get_by_role("button", name="x[x > 5]", exact=True).click()
    page.wait_for_selector("[data-step='3'][data-shares='false']")
    x = mica.arange(24.0).reshape(2, 3, 4)[::2]
    shown = [float(b.inner_text()) for b in page.locator("[data-tensor='3']").all()]
    assert shown == x[x > 5].tolist()


# ---- e


def test_broadcasting_plays_and_traces(page):
    page.visit("e", {"shapes": [[3, 1], [1, 4]], "stage": "align"})
    page.wait_for_selector("[data-operand=a]")
    assert page.locator("[data-operand=result]").count() == 0
    page.click("#play")
    page.wait_for_selector(".ghost")
    page.wait_for_selector("[data-operand=result]")
    page.locator("[data-operand=result] [data-cell='6']").hover()
    a, b = mica.arange(3).reshape(3, 1), mica.arange(4).reshape(1, 4) * 10
    said = page.locator("#sum").inner_text()
    assert "result[1, 2] = a[1, 0] + b[0, 2]" in said
    assert said.endswith(f"{a[1, 0].item()} + {b[0, 2].item()} = {(a + b)[1, 2].item()}")
    assert page.locator(".lit").count() == 3


def test_a_failure_is_drawn_and_the_plainest_mend_is_first(page):
    page.visit("e", {"shapes": [[3, 4], [3]]})
    assert "must match the size of tensor b" in page.error()
    assert page.locator("[data-operand=a] rect[stroke='var(--limit)']").count() == 3  # the column that meets nothing
    mend = page.locator("button.code").first.inner_text()
    assert mend.startswith("b.unsqueeze(1)")
    assert "(3, 4)" in mend and tuple((mica.ones(3, 4) + mica.ones(3).unsqueeze(1)).shape) == (3, 4)


# ---- f


def test_precision_at_seventy_thousand(page, ask):
    page.visit("f")
    page.wait_for_selector("[data-panel=float16]")
    page.get_by_role("button", name="70 000").click()
    page.wait_for_selector("rect[data-clipped=float16]")
    # The clipping fills its panel from top to bottom.
    assert page.locator("rect[data-clipped=float16]").first.bounding_box()["height"] > 100
    exact = ask("precision", curve="sine", amplitude=70000, dtypes=["float32"])["exact"]
    for name in ("float32", "bfloat16"):
        held = mica.tensor(exact, dtype=mica.float64).to(getattr(mica, name))
        assert int(seen(page, f"[data-levels={name}]")) == held.unique().numel()
    assert page.locator("path[data-format=float32]").get_attribute("data-smooth") == "true"
    page.locator("[role=application]").focus()
    page.keyboard.press("PageUp")  # off the top, where the curve is steep
    page.until("document.querySelector('[data-lens=bfloat16]').getAttribute('d').split('V').length > 30")
    # In the lens bfloat16 goes in steps: far fewer heights than samples.
    heights = page.evaluate(
        "new Set([...document.querySelector('[data-lens=bfloat16]').getAttribute('d').matchAll(/V([\\d.]+)/g)].map((m) => m[1])).size"
    )
    assert 3 < heights < 100


def test_precision_shows_what_is_held_and_where_numbers_end(page):
    page.visit("f", {"amplitude": 70000, "shown": ["float8_e4m3fn", "int8"], "format": "int8", "at": 64})
    row = page.wait_for_selector("tr[data-format=float8_e4m3fn]").inner_text().split()
    exact = mica.linspace(0, 1, 257, dtype=mica.float64).mul(2 * math.pi).sin().mul(70000)
    assert str((exact.abs() > 448).sum().item()) in row
    page.wait_for_selector("#neighbours:has-text('next below 126, next above none')")
    assert "scale 551" in seen(page, "[data-panel=int8]")
    page.get_by_text("int8 without a scale").click()
    page.until("!document.querySelector('[data-panel=int8]').textContent.includes('scale')")
    page.get_by_label("Amplitude", exact=True).fill("100")
    page.until(
        f"document.querySelector('[data-levels=int8]').textContent === '{exact.mul(100 / 70000).to(mica.int8).unique().numel()}'"
    )


# ---- g


def test_batches_in_lanes(page, ask):
    page.visit("g", {"n": 4096, "dtype": "float16"})
    page.wait_for_selector("[data-lane=transfer]")
    rows = ask("transfer", n=4096, dtype="float16", measure=False)["rows"]
    a100 = next(r for r in rows if r["name"] == "A100")
    alone = float(page.locator("#lanes-said em").get_attribute("data-seconds"))
    assert alone == pytest.approx(a100["one_by_one"]["seconds"])
    assert page.locator("[data-lane=transfer]").count() == page.locator("[data-lane=compute]").count() == 6
    page.get_by_text("pinned memory, and").click()
    together = float(page.locator("#lanes-said em").get_attribute("data-seconds"))
    assert together == pytest.approx(a100["overlapped"]["seconds"]) and together < alone / 2
    cells = page.locator("[data-machine=A100] td").all_inner_texts()
    assert "12.5 GB/s" in cells[2] and "25.0 GB/s" in cells[3]
    page.get_by_text("a + b", exact=True).click()
    page.wait_for_selector("[data-machine=A100] td:has-text('never')")
    # Where nothing is measured, the page says so.
    page.wait_for_selector(".note:has-text('after a warm-up'), .note:has-text('these are models')")


# ---- h


def test_any_step_is_edited_and_removed(page):
    page.visit("h")
    page.wait_for_selector("[data-step='2']")
    assert "on cpu, data at 0x" in seen(page, "[data-pointer='0']")
    assert seen(page, "[data-pointer='1']").split(",")[1] == seen(page, "[data-pointer='2']").split(",")[1]
    assert page.locator("#memory em").get_attribute("data-bytes") == "48"
    page.get_by_label("Edit x1").click()
    page.locator(".editor #p-shape").fill("2, 6")
    page.get_by_role("button", name="Change").click()
    x = mica.arange(12.0).reshape(2, 6).t()
    page.wait_for_selector(f"[data-facts='2']:has-text('{tuple(x.shape)} \u00b7 strides {x.stride()}')")
    page.get_by_label("Remove x1").click()
    page.wait_for_selector("[data-failed]")  # a transpose of one dimension is refused, in the engine's words
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("[data-step='2']")
    cells = [t.text_content() for t in page.locator("[data-step='2'] [data-cell] text").all()]
    assert [float(c) for c in cells] == x.reshape(-1).tolist()
    assert page.locator("[data-step='2'] [data-tape].reach").count() == 12
    page.get_by_role("button", name="Clear").click()
    page.until("document.querySelectorAll('[data-step]').length === 0")
    page.click("#append")
    page.wait_for_selector("[data-step='0']")
    assert page.locator(".error:not(:empty)").count() == 0


def test_channels_last_and_devices_are_steps(page):
    page.visit("h")
    page.get_by_role("button", name="channels last").click()
    x = mica.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=mica.channels_last)
    page.wait_for_selector(f"[data-facts='2']:has-text('{tuple(x.shape)} \u00b7 strides {x.stride()}')")
    assert "storage 1 of its own" in seen(page, "[data-pointer='2']")
    tape = [t.get_attribute("data-tape") for t in page.locator("[data-step='2'] [data-tape].reach").all()]
    assert len(tape) == x.numel()
    page.wait_for_selector("#operation")
    page.select_option("#operation", "to device")
    page.select_option("#p-device", "meta")
    page.click("#append")
    page.wait_for_selector("[data-pointer='3']:has-text('on meta')")


# ---- i


def test_levels_and_times_are_drawn_as_they_are(page, ask):
    page.visit("i", {"n": 64, "bits": 3})
    page.wait_for_selector("[data-level]")
    hits = [level for level, n in ask("quantize", bits=3)["hits"] if n]
    bars = page.locator("[data-level]")
    assert [float(b.get_attribute("data-level")) for b in bars.all()] == pytest.approx(hits)
    assert min(b.bounding_box()["width"] for b in bars.all()) > 10  # wide enough to tell one from the next
    for name in ("dense", "COO", "CSR"):
        page.wait_for_selector(f"path[data-time={name}]")
    words = "from about|always|never|not so far"
    page.until(f"/COO ({words}).*CSR ({words})/.test(document.querySelector('#faster').textContent)")


def test_the_crossover_is_computed_and_marked(page):
    for n in (32, 1024):
        page.goto("about:blank")
        page.visit("i", {"n": n})
        page.wait_for_selector("circle[data-crossover=COO]")
        csr = 1 - (4 * n * n - 8 * (n + 1)) / 12 / n / n
        full = mica.ones(n, n).to_sparse_csr()
        assert full.crow_indices().nbytes == 8 * (n + 1) and full.col_indices().nbytes == 8 * n * n
        assert float(page.locator("[data-layout=CSR] em").get_attribute("data-crossover")) == pytest.approx(csr)
        assert float(page.locator("[data-layout=COO] em").get_attribute("data-crossover")) == pytest.approx(0.8)
        # On an even axis the mark of 80 % stands at four fifths between 0 and 100.
        at = lambda s: (lambda b: b["x"] + b["width"] / 2)(page.locator(s).first.bounding_box())  # noqa: E731
        zero, whole = at("#instrument svg text.s:text-is('0')"), at("#instrument svg text.s:text-is('100')")
        assert (at("circle[data-crossover=COO]") - zero) / (whole - zero) == pytest.approx(0.8, abs=0.01)


# ---- j


@pytest.mark.served("nothing is watched")
def test_a_traced_program_counts_its_steps(browser, tmp_path):
    import subprocess
    import sys

    script = tmp_path / "train.py"
    script.write_text(
        """
import mica
from mica import nn
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = mica.optim.AdamW(model.parameters(), lr=1e-3)
x = mica.randn(32, 64)
while True:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""
    )
    command = [sys.executable, "-c", "from mica.cli import main; main()", "trace", "--lab", "--no-browser", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as process:
        try:
            url = next(word for line in process.stdout for word in line.split() if word.startswith("http"))
            context = browser.new_context()
            shown = context.new_page()
            shown.set_default_timeout(60000)
            shown.goto(url)
            shown.wait_for_selector("#run-steps")  # the run is what one sees first
            for _ in range(200):
                if int(shown.locator("#run-steps").inner_text().split()[0]) > 3:
                    break
                shown.wait_for_timeout(50)
            else:
                raise AssertionError("no step was counted")
            lines = [
                r.locator("td").first.inner_text()
                for r in shown.locator("h2:has-text('hold most') + div tbody tr").all()
            ]
            assert len(lines) == len(set(lines)) > 0
            ticks = [float(t.get_attribute("data-tick")) for t in shown.locator("[data-tick]").all()]
            assert len(ticks) == 5 and ticks[0] == 0 and ticks[-1] > 0
            context.close()
        finally:
            process.kill()


@pytest.mark.served("nothing is watched")
def test_ranks_of_a_program_have_a_row_each(browser, tmp_path):
    import subprocess
    import sys

    script = tmp_path / "train.py"
    script.write_text(
        """
import time
import mica
import mica.distributed as dist
dist.init_process_group("gloo")
for _ in range(3):
    if dist.get_rank() == 1:
        time.sleep(0.4)
    dist.all_reduce(mica.ones(1000))
dist.destroy_process_group()
"""
    )
    command = [sys.executable, "-m", "mica.cli", "trace", "--ranks", "2", "--lab", "--no-browser", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as process:
        try:
            url = next(word for line in process.stdout for word in line.split() if word.startswith("http"))
            context = browser.new_context()
            shown = context.new_page()
            shown.set_default_timeout(60000)
            shown.goto(url)
            shown.wait_for_selector("#run-ranks")
            for rank in "01":
                assert shown.locator(f"[data-rank='{rank}'][data-collective=all_reduce]").count() == 3
            waited = [float(e.get_attribute("data-waited")) for e in shown.locator("[data-rank='0']").all()]
            assert max(waited) > 0  # rank 1 slept
            assert "rank 1" in shown.locator("#rank-lines tbody td").last.inner_text()
            cells = shown.locator("#rank-waits tbody tr").first.locator("td").all_inner_texts()
            assert cells[0] == "rank 0" and cells[1] == "" and float(cells[2].split()[0]) > 0
            context.close()
        finally:
            process.kill()
