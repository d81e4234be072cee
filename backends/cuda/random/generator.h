// The generator of a CUDA device: Philox, a function of a seed and of the position in the stream.
#pragma once

#include "mica/core/fork.h"
#include "mica/generator.h"

namespace mica::cuda {

class PhiloxGenerator final : public GeneratorImpl {
 public:
  explicit PhiloxGenerator(uint64_t seed) : seed_(seed) {}

  void manual_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t initial_seed() const override { return seed_; }
  std::vector<uint8_t> get_state() const override;  // seed, then offset: what torch.cuda.get_rng_state() holds
  void set_state(const uint8_t* bytes, size_t size) override;
  uint64_t get_offset() const override { return offset_; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  std::shared_ptr<GeneratorImpl> clone() const override;
  uint32_t random() override;
  uint64_t random64() override;

  // While a graph is captured, kernels draw relative to a place that they read from device memory: offset, then seed.
  void begin_capture(const uint64_t* place) {
    captured_ = place;
    before_ = offset_;
    offset_ = 0;
  }
  // How many numbers of each thread the capture has taken.
  uint64_t end_capture() {
    const uint64_t taken = offset_;
    offset_ = before_;
    captured_ = nullptr;
    return taken;
  }
  const uint64_t* captured() const { return captured_; }

  // Where a kernel begins that will draw `count` numbers in each of its threads; a multiple of four.
  uint64_t take(uint64_t count) {
    const uint64_t begin = offset_;
    offset_ += (count + 3) / 4 * 4;
    return begin;
  }

 private:
  uint64_t seed_;
  uint64_t offset_ = 0, before_ = 0;
  const uint64_t* captured_ = nullptr;
  HeldOverFork held_{mutex, LockOrder::Generators};
};

// The generator behind the handle; an error if it is another device's.
PhiloxGenerator& philox(const Generator& generator);
Generator& default_generator(int index);
Generator new_generator(int index, uint64_t seed);

}  // namespace mica::cuda
