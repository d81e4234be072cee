"""The allocator: reuse, segments that grow, statistics, snapshots, limits, and what it says when there is no more."""

import os
import shutil
import subprocess
import sys

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

MIB = 1 << 20


def run_alone(code, **environment):
    """Runs code in a process of its own, whose allocator is fresh."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_released_block_is_taken_again():
    x = mica.empty(1000, device="cuda")
    address = x.data_ptr()
    del x
    assert mica.empty(1000, device="cuda").data_ptr() == address


def test_statistics_count_what_is_held():
    mica.cuda.empty_cache()
    before = mica.cuda.memory_stats()
    x = mica.empty(3 * MIB, dtype=mica.uint8, device="cuda")
    y = mica.empty(1000, dtype=mica.uint8, device="cuda")
    now = mica.cuda.memory_stats()
    for name, more in {
        "allocated_bytes.all.current": 3 * MIB + 1024,
        "allocated_bytes.small_pool.current": 1024,
        "allocated_bytes.large_pool.current": 3 * MIB,
        "requested_bytes.all.current": 3 * MIB + 1000,
        "allocation.all.current": 2,
        "allocation.all.allocated": 2,
        "active.all.current": 2,
    }.items():
        assert now[name] - before[name] == more, name
    assert now["reserved_bytes.all.current"] >= now["allocated_bytes.all.current"]
    del x, y
    after = mica.cuda.memory_stats()
    assert after["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert after["allocation.all.freed"] == before["allocation.all.freed"] + 2
    mica.cuda.reset_accumulated_memory_stats()
    assert mica.cuda.memory_stats()["allocation.all.allocated"] == 0
    text = mica.cuda.memory_summary()
    assert "CUDA OOMs: " in text and "GPU reserved memory" in text and len(set(map(len, text.splitlines()))) == 1


def test_the_snapshot_has_every_segment_and_block():
    x = mica.empty(5 * MIB, dtype=mica.uint8, device="cuda")
    found = [s for s in mica.cuda.memory_snapshot() if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    assert len(found) == 1
    segment = found[0]
    assert segment["segment_type"] == "large" and segment["device"] == 0 and segment["stream"] == 0
    blocks = segment["blocks"]
    assert sum(b["size"] for b in blocks) == segment["total_size"]
    assert [b["address"] for b in blocks] == sorted(b["address"] for b in blocks)
    mine = next(b for b in blocks if b["address"] == x.data_ptr())
    assert mine["state"] == "active_allocated" and mine["requested_size"] == 5 * MIB
    total = sum(s["total_size"] for s in mica.cuda.memory_snapshot())
    assert total == mica.cuda.memory_reserved()


def test_pinned_memory_is_counted():
    mica.cuda.empty_cache()
    x = mica.ones(1000).pin_memory()
    stats = mica.cuda.host_memory_stats()
    assert stats["allocated_bytes.current"] >= 4096 and stats["num_host_alloc"] >= 1
    held = stats["allocation.current"]
    del x
    stats = mica.cuda.host_memory_stats()
    assert stats["allocation.current"] == held - 1 and stats["segment.current"] >= 1
    mica.cuda.empty_cache()
    assert mica.cuda.host_memory_stats()["reserved_bytes.current"] < stats["reserved_bytes.current"]


def test_a_limit_is_kept_and_the_holders_are_named():
    mica.cuda.empty_cache()
    held = [mica.empty(64 * MIB, dtype=mica.uint8, device="cuda") for _ in range(3)]
    total = mica.cuda.mem_get_info()[1]
    mica.cuda.set_per_process_memory_fraction((mica.cuda.memory_reserved() + 100 * MIB) / total)
    try:
        with pytest.raises(
            mica.cuda.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate 128.00 MiB.*3 of 64.00 MiB"
        ):
            mica.empty(128 * MIB, dtype=mica.uint8, device="cuda")
        ooms = mica.cuda.memory_stats()["num_ooms"]
        assert ooms >= 1
        del held[0]
        # Memory that nobody holds any more is given back and asked for again.
        mica.empty(128 * MIB, dtype=mica.uint8, device="cuda")
        assert mica.cuda.memory_stats()["num_alloc_retries"] >= 1 and mica.cuda.memory_stats()["num_ooms"] == ooms
    finally:
        mica.cuda.set_per_process_memory_fraction(1.0)


GROWING = """
import mica
MIB = 1 << 20
def empty(mib):
    return mica.empty(mib * MIB, dtype=mica.uint8, device="cuda")
a, b, c = empty(30), empty(50), empty(70)
for t in (a, b, c):
    t.fill_(7)
assert b.data_ptr() == a.data_ptr() + 30 * MIB and c.data_ptr() == b.data_ptr() + 50 * MIB
segments = [s for s in mica.cuda.memory_snapshot() if s["is_expandable"]]
assert len(segments) == 1 and segments[0]["total_size"] == mica.cuda.memory_reserved() == 160 * MIB
place = a.data_ptr()
del a, b
d = empty(80)  # where two were: neighbours are one block
assert d.data_ptr() == place and mica.cuda.memory_reserved() == 160 * MIB
d.fill_(3)
assert c.float().sum().item() == 7 * 70 * MIB and d.float().mean().item() == 3
del d
mica.cuda.synchronize()
before = mica.cuda.memory_reserved()
mica.cuda.empty_cache()  # whole pages before c go, and c stays
assert mica.cuda.memory_reserved() <= before - 80 * MIB
assert c.float().sum().item() == 7 * 70 * MIB
e = empty(200)
e.fill_(1)
assert e.float().sum().item() == 200 * MIB
del c, e
mica.cuda.empty_cache()
small = [mica.full((1000,), float(i), device="cuda") for i in range(2000)]
assert [t[0].item() for t in small[::500]] == [0, 500, 1000, 1500]
g = mica.cuda.CUDAGraph()
x = mica.ones(1000, device="cuda")
x @ x
with mica.cuda.graph(g):
    y = (x * 2).sum()
x.fill_(4)
g.replay()
assert y.item() == 8000
print("done")
"""


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "MICA_CUDA_ALLOC_CONF"])
def test_segments_that_grow(name):
    assert "done" in run_alone(GROWING, **{name: "expandable_segments:True"})


def test_settings_are_checked():
    from mica.cuda.memory import _set_allocator_settings

    _set_allocator_settings("max_split_size_mb:128, roundup_power2_divisions:[256:1,512:2,>:4]")
    _set_allocator_settings("expandable_segments:False")
    with pytest.raises(RuntimeError, match="Unrecognized key 'no_such_thing'"):
        _set_allocator_settings("no_such_thing:1")
    with pytest.raises(RuntimeError, match="max_split_size_mb too small"):
        _set_allocator_settings("max_split_size_mb:1")
    with pytest.raises(RuntimeError, match="True/False"):
        _set_allocator_settings("expandable_segments:yes")


FOREIGN = """
import ctypes, subprocess, sys
source = r'''
#include <stddef.h>
#include <sys/types.h>
extern int cuMemAlloc_v2(unsigned long long*, size_t);
extern int cuMemFree_v2(unsigned long long);
static int held = 0, made = 0;
void* take(ssize_t size, int device, void* stream) { unsigned long long p = 0; if (cuMemAlloc_v2(&p, (size_t)size)) return 0; ++held, ++made; return (void*)p; }
void give(void* p, ssize_t size, int device, void* stream) { if (p) { cuMemFree_v2((unsigned long long)p); --held; } }
int count(int which) { return which ? made : held; }
'''
open(sys.argv[1] + "/a.c", "w").write(source)
subprocess.run(["cc", "-shared", "-fPIC", "-o", sys.argv[1] + "/a.so", sys.argv[1] + "/a.c", "-l:libcuda.so.1"], check=True)
import mica
mica.cuda.init()
mica.cuda.memory.change_current_allocator(mica.cuda.memory.CUDAPluggableAllocator(sys.argv[1] + "/a.so", "take", "give"))
x = mica.ones(1000, device="cuda") * 2
assert x.sum().item() == 2000
count = ctypes.CDLL(sys.argv[1] + "/a.so").count
assert count(1) >= 2 and count(0) == 1
del x
assert count(0) == 0
print("done")
"""


def test_memory_of_another_allocator(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    done = subprocess.run([sys.executable, "-c", FOREIGN, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "done" in done.stdout, done.stderr
    with pytest.raises(RuntimeError, match="already initialized"):
        mica.ones(1, device="cuda")
        mica.cuda.memory.change_current_allocator(
            mica.cuda.memory.CUDAPluggableAllocator(tmp_path / "a.so", "take", "give")
        )


def test_a_pool_has_memory_of_its_own():
    pool = mica.cuda.MemPool()
    with mica.cuda.use_mem_pool(pool):
        x = mica.ones(1 << 20, device="cuda")
    outside = mica.ones(1 << 20, device="cuda")
    segments = pool.snapshot()
    assert sum(s["allocated_size"] for s in segments) == 4 * MIB
    inside = [s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    assert len(inside) == 1
    assert not any(s["address"] <= outside.data_ptr() < s["address"] + s["total_size"] for s in segments)
    del x
    mica.cuda.empty_cache()
    assert pool.snapshot(), "a pool keeps its memory"
    name = pool.id
    del pool
    mica.cuda.empty_cache()
    assert mica.cuda.memory_snapshot(name) == []


@pytest.mark.parametrize("option", ["use_on_oom", "no_split"])
def test_what_a_pool_does_not_do_is_refused(option):
    with pytest.raises(NotImplementedError, match=option):
        mica.cuda.MemPool(**{option: True})
    assert mica.cuda.MemPool(**{option: False}).snapshot() == []


def test_sync_debug_mode():
    x = mica.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        mica.cuda.set_sync_debug_mode("loud")
    try:
        mica.cuda.set_sync_debug_mode("error")
        assert mica.cuda.get_sync_debug_mode() == 2
        y = x + 1
        for call in (lambda: y.sum().item(), lambda: y.nonzero(), lambda: mica.ones(100000, device="cuda").cpu()):
            with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
                call()
        mica.cuda.set_sync_debug_mode(1)
        with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
            assert y.sum().item() == 6
    finally:
        mica.cuda.set_sync_debug_mode("default")
    assert y.sum().item() == 6


def test_memory_without_a_cache():
    mica.cuda.memory.caching_allocator_enable(False)
    try:
        mica.cuda.empty_cache()
        before = mica.cuda.memory_reserved()
        x = mica.ones(1000, device="cuda")
        assert mica.cuda.memory_reserved() == before + 4096
        del x
        assert mica.cuda.memory_reserved() == before
    finally:
        mica.cuda.memory.caching_allocator_enable(True)
