#include "backends/cpu/random/draw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/random/draw.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<uint32_t> d32;
using V32 = hn::Vec<decltype(d32)>;
constexpr uint32_t kLanes = hn::MaxLanes(d32);

// Computes state[i] for i in [begin, end) from the words `offset` further on and those at i and i + 1. A run is no
// longer than the offset's distance, so that no vector reads a word that an earlier one of the run has written.
void twist_run(uint32_t* state, uint32_t begin, uint32_t end, int32_t offset) {
  const V32 upper = hn::Set(d32, 0x80000000u);
  const V32 one = hn::Set(d32, 1u);
  const V32 matrix = hn::Set(d32, 0x9908b0dfu);
  uint32_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const V32 following = hn::LoadU(d32, state + i + 1);
    const V32 mixed = hn::Or(hn::And(upper, hn::LoadU(d32, state + i)), hn::AndNot(upper, following));
    const V32 odd = hn::And(hn::Sub(hn::Zero(d32), hn::And(following, one)), matrix);
    const V32 shifted = hn::LoadU(d32, state + static_cast<int32_t>(i) + offset);
    hn::StoreU(hn::Xor(hn::Xor(shifted, hn::ShiftRight<1>(mixed)), odd), d32, state + i);
  }
  for (; i < end; ++i) {
    state[i] = Mt19937::twisted(state[static_cast<int32_t>(i) + offset], state[i], state[i + 1]);
  }
}

void refill(Mt19937& engine) {
  constexpr int32_t shift = Mt19937::kShift;
  constexpr int32_t words = Mt19937::kWords;
  uint32_t* state = engine.state;
  twist_run(state, 0, words - shift, shift);
  twist_run(state, words - shift, words - 1, shift - words);
  state[words - 1] = Mt19937::twisted(state[shift - 1], state[words - 1], state[0]);
  engine.mark_refilled();
}

void temper(const uint32_t* state, uint32_t* out, int64_t count) {
  const V32 mask7 = hn::Set(d32, 0x9d2c5680u);
  const V32 mask15 = hn::Set(d32, 0xefc60000u);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    V32 y = hn::LoadU(d32, state + i);
    y = hn::Xor(y, hn::ShiftRight<11>(y));
    y = hn::Xor(y, hn::And(hn::ShiftLeft<7>(y), mask7));
    y = hn::Xor(y, hn::And(hn::ShiftLeft<15>(y), mask15));
    y = hn::Xor(y, hn::ShiftRight<18>(y));
    hn::StoreU(y, d32, out + i);
  }
  for (; i < count; ++i) out[i] = Mt19937::temper(state[i]);
}

void draw(Mt19937& engine, uint32_t* out, int64_t count) {
  while (count > 0) {
    if (engine.available() == 0) refill(engine);
    const auto taken = static_cast<uint32_t>(std::min<int64_t>(count, engine.available()));
    temper(engine.state + engine.next, out, taken);
    engine.consume(taken);
    out += taken;
    count -= taken;
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {

HWY_EXPORT(draw);

void draw_words(Mt19937& engine, uint32_t* out, int64_t count) { HWY_DYNAMIC_DISPATCH(draw)(engine, out, count); }

void draw_words(Mt19937& engine, uint64_t* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(draw)(engine, reinterpret_cast<uint32_t*>(out), 2 * count);
  // The word drawn first is the high half, and lies lower in memory.
  for (int64_t i = 0; i < count; ++i) out[i] = out[i] << 32 | out[i] >> 32;
}

}  // namespace mica::cpu
#endif
