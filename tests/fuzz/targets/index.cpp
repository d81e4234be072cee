// Index expressions: read from and written to a small tensor.
#include "fuzz_input.h"
#include "mica/indexing.h"
#include "mica/ops.h"

using namespace mica;

namespace {

std::optional<int64_t> maybe(fuzz::Input& input) {
  return input.below(3) == 0 ? std::nullopt : std::optional(input.any_number());
}

indexing::TensorIndex entry(fuzz::Input& input) {
  switch (input.below(7)) {
    case 0:
      return indexing::None;
    case 1:
      return indexing::Ellipsis;
    case 2:
      return input.below(2) == 1;
    case 3: {
      const auto start = maybe(input), stop = maybe(input), step = maybe(input);
      return indexing::Slice(start, stop, step);
    }
    case 4: {  // a mask
      DimVector sizes;
      for (int64_t d = input.below(3); d > 0; --d) sizes.push_back(input.below(4));
      Tensor mask = zeros(sizes, DType::Bool);
      for (int64_t i = 0; i < mask.numel(); ++i) static_cast<bool*>(mask.data_ptr())[i] = input.below(2);
      return mask;
    }
    case 5: {  // places
      DimVector sizes;
      for (int64_t d = input.below(3); d > 0; --d) sizes.push_back(input.below(4));
      Tensor places = zeros(sizes, DType::Int64);
      for (int64_t i = 0; i < places.numel(); ++i) static_cast<int64_t*>(places.data_ptr())[i] = input.any_number();
      return places;
    }
    default:
      return input.any_number();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  DimVector sizes;
  for (int64_t d = input.below(5); d > 0; --d) sizes.push_back(input.below(5));
  const Tensor x = zeros(sizes);
  std::vector<indexing::TensorIndex> entries;
  const bool writes = input.below(2);
  while (!input.empty() && entries.size() < 8) entries.push_back(entry(input));
  return fuzz::expect_no_crash([&] {
    if (writes) {
      indexing::set(x, entries, Scalar(1.0));
    } else {
      indexing::get(x, entries).sum();
    }
  });
}
