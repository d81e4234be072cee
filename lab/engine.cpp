#include "instruments.h"
#include "mica/parallel.h"
#include "operations.h"

namespace mica::lab {

Json engine(const Json&) {
  Json dtypes = Json::array();
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    if (is_storage_only(t) && t != DType::Float4_e2m1fn_x2) continue;  // nothing is computed with these
    dtypes.push_back({{"name", name(t)}, {"bytes", element_size(t)}, {"floating", is_floating(t)}});
  }
  return {
      {"dtypes", dtypes}, {"threads", get_num_threads()}, {"measures", kMeasures}, {"operations", operations_json()}};
}

}  // namespace mica::lab
