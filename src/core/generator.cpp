#include "src/core/generator.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <typeinfo>

#include "mica/error.h"

namespace mica {
namespace {

// The bytes of torch.get_rng_state(): the layout of torch's first generator, followed by what came later.
struct FirstTorchState {
  uint64_t seed;
  int32_t left;
  int32_t seeded;
  uint64_t next;
  uint64_t state[Mt19937::kWords];
  double unused_normal_x;
  double next_normal;
  double unused_normal_rho;
  int32_t has_next_normal;
};
struct TorchState {
  FirstTorchState first;
  float next_float_normal;
  uint8_t has_next_float_normal;
};
static_assert(sizeof(TorchState) == 5056);

uint64_t entropy() {
  std::random_device device;
  const uint64_t high = device();
  return high << 32 | device();
}

}  // namespace

// ---- the engine -----------------------------------------------------------------------------------------------

void Mt19937::reseed(uint64_t seed_value) {
  seed = seed_value;
  state[0] = static_cast<uint32_t>(seed_value);
  for (uint32_t i = 1; i < kWords; ++i) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
  left = 1;
  next = 0;
}

void Mt19937::refill() {
  constexpr uint32_t rest = kWords - kShift;
  for (uint32_t i = 0; i < rest; ++i) state[i] = twisted(state[i + kShift], state[i], state[i + 1]);
  for (uint32_t i = rest; i + 1 < kWords; ++i) state[i] = twisted(state[i - rest], state[i], state[i + 1]);
  state[kWords - 1] = twisted(state[kShift - 1], state[kWords - 1], state[0]);
  mark_refilled();
}

// ---- the CPU generator ----------------------------------------------------------------------------------------

void CpuGenerator::manual_seed(uint64_t seed) {
  engine.reseed(seed);
  next_normal.reset();
  next_float_normal.reset();
}

std::vector<uint8_t> CpuGenerator::get_state() const {
  std::vector<uint8_t> bytes(sizeof(TorchState));
  TorchState saved;
  std::memset(&saved, 0, sizeof saved);
  saved.first.seed = engine.seed;
  saved.first.left = static_cast<int32_t>(engine.left);
  saved.first.seeded = 1;
  saved.first.next = engine.next;
  std::copy_n(engine.state, Mt19937::kWords, saved.first.state);
  saved.first.next_normal = next_normal.value_or(0.0);
  saved.first.has_next_normal = next_normal.has_value();
  saved.next_float_normal = next_float_normal.value_or(0.0f);
  saved.has_next_float_normal = next_float_normal.has_value();
  std::memcpy(bytes.data(), &saved, sizeof saved);
  return bytes;
}

void CpuGenerator::set_state(const uint8_t* bytes, size_t size) {
  MICA_CHECK(size == sizeof(TorchState), "Expected a CPUGeneratorImplState of size ", sizeof(TorchState),
             " but found the input RNG state size to be ", size);
  TorchState saved;
  std::memcpy(&saved, bytes, sizeof saved);
  const FirstTorchState& first = saved.first;
  // Unused words must lie within the state. torch accepts bytes that make it read past the end.
  const bool in_range = first.left >= 1 && first.left <= static_cast<int32_t>(Mt19937::kWords) &&
                        first.next <= Mt19937::kWords && first.next + first.left <= Mt19937::kWords + 1;
  MICA_CHECK(first.seeded != 0 && in_range, "Invalid mt19937 state: seeded=", first.seeded, ", left=", first.left,
             ", next=", first.next, ". Pass the bytes that get_state() or torch.get_rng_state() returned.");
  engine.seed = first.seed;
  engine.left = static_cast<uint32_t>(first.left);
  engine.next = static_cast<uint32_t>(first.next);
  std::transform(first.state, first.state + Mt19937::kWords, engine.state,
                 [](uint64_t word) { return static_cast<uint32_t>(word); });
  next_normal = first.has_next_normal ? std::optional(first.next_normal) : std::nullopt;
  next_float_normal = saved.has_next_float_normal ? std::optional(saved.next_float_normal) : std::nullopt;
}

uint64_t CpuGenerator::get_offset() const { fail("CPU Generator does not use offset"); }

void CpuGenerator::set_offset(uint64_t) { fail("CPU Generator does not use offset"); }

std::shared_ptr<GeneratorImpl> CpuGenerator::clone() const {
  auto copy = std::make_shared<CpuGenerator>(engine.seed);
  copy->engine = engine;
  copy->next_normal = next_normal;
  copy->next_float_normal = next_float_normal;
  return copy;
}

CpuGenerator& cpu_generator(const Generator& generator) {
  GeneratorImpl& impl = generator.impl();
  MICA_CHECK(typeid(impl) == typeid(CpuGenerator),
             "Expected a 'cpu' device type for generator but found that of another device");
  return static_cast<CpuGenerator&>(impl);
}

// ---- the handle -----------------------------------------------------------------------------------------------

Generator::Generator() : Generator(kDefaultSeed) {}

Generator::Generator(uint64_t seed) : impl_(std::make_shared<CpuGenerator>(seed)) {}

Generator& Generator::manual_seed(uint64_t seed) {
  std::lock_guard lock(mutex());
  impl_->manual_seed(seed);
  return *this;
}

uint64_t Generator::seed() {
  const uint64_t chosen = entropy();
  manual_seed(chosen);
  return chosen;
}

uint64_t Generator::initial_seed() const {
  std::lock_guard lock(mutex());
  return impl_->initial_seed();
}

std::vector<uint8_t> Generator::get_state() const {
  std::lock_guard lock(mutex());
  return impl_->get_state();
}

void Generator::set_state(const uint8_t* bytes, size_t size) {
  std::lock_guard lock(mutex());
  impl_->set_state(bytes, size);
}

uint64_t Generator::get_offset() const {
  std::lock_guard lock(mutex());
  return impl_->get_offset();
}

void Generator::set_offset(uint64_t offset) {
  std::lock_guard lock(mutex());
  impl_->set_offset(offset);
}

Generator Generator::clone() const {
  std::lock_guard lock(mutex());
  return Generator(impl_->clone());
}

uint32_t Generator::random() {
  std::lock_guard lock(mutex());
  return impl_->random();
}

uint64_t Generator::random64() {
  std::lock_guard lock(mutex());
  return impl_->random64();
}

static MadeOnce<Generator> generator_of_calls;

Generator& default_generator() {
  return generator_of_calls.get([] { return new Generator(entropy()); });
}

}  // namespace mica
