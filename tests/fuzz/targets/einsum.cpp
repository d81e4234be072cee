// Equations of einsum over a few small operands.
#include "fuzz_input.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mica;
  fuzz::Input input(data, size);
  std::vector<Tensor> operands;
  for (int64_t i = input.below(4); i >= 0; --i) {
    DimVector sizes;
    for (int64_t d = input.below(6); d > 0; --d) sizes.push_back(input.below(4));
    operands.push_back(ones(sizes));
  }
  const std::string_view equation = input.rest().substr(0, 64);
  return fuzz::expect_no_crash([&] { composite::einsum(equation, operands, {}); });
}
