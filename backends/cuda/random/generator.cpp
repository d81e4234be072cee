#include "backends/cuda/random/generator.h"

#include <cstring>

#include "backends/cuda/runtime.h"

namespace mica::cuda {

std::vector<uint8_t> PhiloxGenerator::get_state() const {
  std::vector<uint8_t> bytes(16);
  std::memcpy(bytes.data(), &seed_, 8);
  std::memcpy(bytes.data() + 8, &offset_, 8);
  return bytes;
}

void PhiloxGenerator::set_state(const uint8_t* bytes, size_t size) {
  MICA_CHECK(size == 16 || size == 8, "RNG state is wrong size: expected 16 bytes, got ", size);
  std::memcpy(&seed_, bytes, 8);
  offset_ = 0;
  if (size == 16) std::memcpy(&offset_, bytes + 8, 8);
}

std::shared_ptr<GeneratorImpl> PhiloxGenerator::clone() const {
  auto copy = std::make_shared<PhiloxGenerator>(seed_);
  copy->offset_ = offset_;
  return copy;
}

uint32_t PhiloxGenerator::random() {
  fail("a CUDA generator hands out no single numbers: draw a tensor on its device");
}
uint64_t PhiloxGenerator::random64() { return random(); }

PhiloxGenerator& philox(const Generator& generator) {
  auto* found = dynamic_cast<PhiloxGenerator*>(&generator.impl());
  MICA_CHECK(found, "Expected a 'cuda' device type for generator but found 'cpu'");
  return *found;
}

Generator& default_generator(int index) {
  static auto* all = [] {
    auto* made = new std::vector<Generator>;
    for (int i = 0; i < device_count(); ++i) made->push_back(new_generator(i, Generator::kDefaultSeed));
    return made;
  }();
  return (*all)[static_cast<size_t>(index)];
}

Generator new_generator(int, uint64_t seed) { return Generator(std::make_shared<PhiloxGenerator>(seed)); }

}  // namespace mica::cuda
