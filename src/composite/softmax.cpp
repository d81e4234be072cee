
#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

// The dimension that torch chose before `dim` had to be given.
int64_t dim_or_default(const char* op, const Tensor& input, std::optional<int64_t> dim) {
  if (dim) return *dim;
  warn(mica::cat("Implicit dimension choice for ", op,
                 " has been deprecated. Change the call to include dim=X as an argument."));
  return input.dim() == 0 || input.dim() == 1 || input.dim() == 3 ? 0 : 1;
}

}  // namespace

Tensor functional_softmax(const Tensor& input, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
  return mica::softmax(input, dim_or_default("softmax", input, dim), dtype);
}
Tensor functional_log_softmax(const Tensor& input, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
  return mica::log_softmax(input, dim_or_default("log_softmax", input, dim), dtype);
}
Tensor softmin(const Tensor& input, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
  return mica::softmax(-input, dim_or_default("softmin", input, dim), dtype);
}

}  // namespace mica::composite
