// DLPack structures whose numbers may be anything. Only those that stay within the memory that is there are read.
#include <array>

#include "fuzz_input.h"
#include "interop/dlpack_import.h"
#include "mica/ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mica;
  static std::array<double, 512> memory{};
  static int released;
  fuzz::Input input(data, size);
  std::vector<int64_t> shape, strides;
  const auto flags = input.number<uint8_t>();
  dlpack::DLTensor t{};
  t.data = flags & 1 ? nullptr : memory.data() + memory.size() / 2;
  t.device = {static_cast<int32_t>(input.any_number()), static_cast<int32_t>(input.any_number())};
  t.dtype = {input.number<uint8_t>(), input.number<uint8_t>(), static_cast<uint16_t>(flags & 2 ? 2 : 1)};
  const int64_t dims = input.below(5);
  for (int64_t d = 0; d < dims; ++d) {
    shape.push_back(input.any_number());
    strides.push_back(input.any_number());
  }
  t.ndim = flags & 4 ? static_cast<int32_t>(input.any_number()) : static_cast<int32_t>(dims);
  if (t.ndim > dims) t.ndim = -t.ndim;  // a count that lies upwards cannot be told
  t.shape = flags & 8 ? nullptr : shape.data();
  t.strides = flags & 16 ? nullptr : strides.data();
  t.byte_offset = flags & 32 ? input.number<uint64_t>() : 0;
  const int before = released;
  bool made = false;
  fuzz::expect_no_crash([&] {
    const Tensor x = dlpack::tensor_over(
        t, [](void*, void*, size_t) { ++released; }, nullptr);
    made = true;
    const auto* first = static_cast<char*>(x.storage()->data());
    const auto* begin = reinterpret_cast<char*>(memory.data());
    if (x.numel() == 0 || x.numel() > 512 || !x.is_cpu()) return;
    if (first < begin || first > begin + sizeof memory || x.storage()->nbytes() > sizeof memory) return;
    if (first + x.storage()->nbytes() <= begin + sizeof memory) x.clone();
  });
  // The owner is told exactly once if the memory was taken over, and never otherwise.
  if (released != before + made) __builtin_trap();
  return 0;
}
