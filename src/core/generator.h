// The CPU's generator: the 32-bit Mersenne Twister, drawn from in torch's order.
#pragma once

#include <optional>

#include "mica/core/fork.h"
#include "mica/generator.h"

namespace mica {

// MT19937. `next` is the first word of `state` not yet handed out; `left` counts the words up to the next twist, plus
// one: 1 after seeding (the seeded words are never handed out themselves), else 625 - next.
struct Mt19937 {
  static constexpr uint32_t kWords = 624;
  static constexpr uint32_t kShift = 397;

  uint64_t seed;
  uint32_t left;
  uint32_t next;
  uint32_t state[kWords];

  explicit Mt19937(uint64_t seed_value) { reseed(seed_value); }
  void reseed(uint64_t seed_value);

  uint32_t available() const { return left - 1; }
  void consume(uint32_t words) {
    next += words;
    left -= words;
  }
  // Call when nothing is available, then write `twisted` words to `state`: the state then offers all its words.
  void mark_refilled() {
    next = 0;
    left = kWords + 1;
  }
  void refill();

  uint32_t draw() {
    if (available() == 0) refill();
    const uint32_t word = temper(state[next]);
    consume(1);
    return word;
  }
  uint64_t draw64() {
    const uint64_t high = draw();
    return high << 32 | draw();
  }

  static uint32_t twisted(uint32_t shifted, uint32_t current, uint32_t following) {
    const uint32_t mixed = (current & 0x80000000u) | (following & 0x7fffffffu);
    return shifted ^ (mixed >> 1) ^ (following & 1u ? 0x9908b0dfu : 0u);
  }
  static uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }
};

class CpuGenerator final : public GeneratorImpl {
 public:
  explicit CpuGenerator(uint64_t seed) : engine(seed) {}

  void manual_seed(uint64_t seed) override;
  uint64_t initial_seed() const override { return engine.seed; }
  std::vector<uint8_t> get_state() const override;
  void set_state(const uint8_t* bytes, size_t size) override;
  uint64_t get_offset() const override;
  void set_offset(uint64_t offset) override;
  std::shared_ptr<GeneratorImpl> clone() const override;
  uint32_t random() override { return engine.draw(); }
  uint64_t random64() override { return engine.draw64(); }

  Mt19937 engine;
  // Box-Muller makes normals in pairs: the second of a pair waits here for the next draw.
  std::optional<double> next_normal;
  std::optional<float> next_float_normal;  // part of torch's state, though no CPU kernel of torch draws it

 private:
  HeldOverFork held_{mutex, LockOrder::Generators};
};

// The CPU generator behind the handle; an error if it is another device's.
CpuGenerator& cpu_generator(const Generator& generator);

}  // namespace mica
