// Memory by arithmetic alone: the bytes of a shape in every dtype.
#include <algorithm>

#include "instruments.h"

namespace mica::lab {

Json calculator(const Json& question) {
  const DimVector shape = dims(question.at("shape"), "shape");
  int64_t numel = 1;
  for (const int64_t n : shape) {
    MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", shape.ref());
    MICA_CHECK(!__builtin_mul_overflow(numel, n, &numel) && numel < (int64_t{1} << 56),
               "Storage size calculation overflowed with sizes=", shape.ref());
  }
  Json rows = Json::array(), widths = Json::array();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    if (is_storage_only(t) && t != DType::Float4_e2m1fn_x2) continue;  // nothing is computed with these
    // A tensor without memory: its size is what the engine would allocate.
    const Tensor bare = mica::empty(shape, TensorOptions(t).device(Device{DeviceType::Meta}));
    const auto bytes = static_cast<int64_t>(bare.storage()->nbytes());
    rows.push_back({{"dtype", name(t)}, {"element", element_size(t)}, {"bytes", bytes}});
    // Dtypes of one width cost the same: the page draws one bar for all of them.
    const auto same =
        std::find_if(widths.begin(), widths.end(), [&](const Json& w) { return w["element"] == element_size(t); });
    if (same == widths.end()) {
      widths.push_back({{"element", element_size(t)}, {"bytes", bytes}, {"dtypes", Json::array({name(t)})}});
    } else {
      (*same)["dtypes"].push_back(name(t));
    }
  }
  std::sort(widths.begin(), widths.end(), [](const Json& a, const Json& b) { return a["element"] > b["element"]; });
  const Tensor bare = mica::empty(shape, TensorOptions(DType::Float32).device(Device{DeviceType::Meta}));
  return {{"numel", numel}, {"strides", integers(bare.strides())}, {"dtypes", rows}, {"widths", widths}};
}

}  // namespace mica::lab
