#include "core/out.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/allocate.h"
#include "core/expanded.h"
#include "core/geometry.h"
#include "core/observe.h"
#include "core/out_dtype.h"
#include "core/recorded_rows.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica {

namespace {

struct Step {
  int64_t stride, size;
};

// Whether two tensors with these steps, the second of which begins `distance` behind the first, can have an element in
// common: whether there are k with |k| < size for which the sum of k * stride is the distance. `reach` is the longest
// such sum. Steps go from the longest stride to the shortest. Where more than two k are left for a step, the answer is
// yes.
bool meet(const Step* step, const Step* end, int64_t distance, int64_t reach) {
  if (distance < -reach || distance > reach) return false;
  if (step == end) return true;
  const int64_t rest = reach - (step->size - 1) * step->stride;
  const auto floor_div = [](int64_t a, int64_t b) { return a / b - (a % b < 0); };
  const int64_t first = std::max(-floor_div(rest - distance, step->stride), 1 - step->size);
  const int64_t last = std::min(floor_div(rest + distance, step->stride), step->size - 1);
  if (last - first > 1) return true;
  for (int64_t k = first; k <= last; ++k)
    if (meet(step + 1, end, distance - k * step->stride, rest)) return true;
  return false;
}

// Where a tensor begins in its storage.
int64_t first_byte(const Tensor& t) { return t.storage_offset() * static_cast<int64_t>(t.element_size()); }

// Whether tensors of the same sizes, strides and dtype have an element in common. Columns of a matrix have none, though
// their ranges of memory lie in each other.
bool share_an_element(const Tensor& a, const Tensor& b) {
  const int64_t bytes = first_byte(b) - first_byte(a);
  const int64_t element = static_cast<int64_t>(a.element_size());
  if (bytes % element) return true;
  std::vector<Step> steps;
  int64_t reach = 0;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) < 2 || a.stride(d) == 0) continue;
    steps.push_back({std::abs(a.stride(d)), a.size(d)});
    reach += (a.size(d) - 1) * steps.back().stride;
  }
  std::sort(steps.begin(), steps.end(), [](const Step& x, const Step& y) { return x.stride > y.stride; });
  return meet(steps.data(), steps.data() + steps.size(), bytes / element, reach);
}

}  // namespace

bool may_share_memory(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || !(a.storage() == b.storage()) || !a.storage()) return false;
  // data_ptr() of a sparse tensor, whose storage is empty, throws an error that says what the tensor is.
  if (a.storage()->nbytes() == 0 ? !a.data_ptr() : a.is_meta()) return false;
  const Extent x = extent(a.sizes(), a.strides()), y = extent(b.sizes(), b.strides());
  const int64_t pa = first_byte(a), pb = first_byte(b);
  if (pa + x.low * a.element_size() >= pb + y.high * b.element_size() ||
      pb + y.low * b.element_size() >= pa + x.high * a.element_size())
    return false;
  return a.dtype() != b.dtype() || !(a.sizes() == b.sizes()) || !(a.strides() == b.strides()) || share_an_element(a, b);
}

void check_no_internal_overlap(const char* op, const Tensor& target) {
  if (target.impl()->contiguous || target.numel() < 2) return;
  MICA_CHECK(
      !has_internal_overlap(target.sizes(), target.strides()),
      "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
      "Please clone() the tensor before performing the operation. (",
      op, " on sizes ", target.sizes(), " with strides ", target.strides(), ")");
}

bool warn_if_expanded(const char* op, const Tensor& target) {
  bool expanded = false;
  for (int64_t d = 0; d < target.dim(); ++d) expanded |= target.strides()[d] == 0 && target.sizes()[d] > 1;
  if (!expanded) {
    check_no_internal_overlap(op, target);
    return false;
  }
  warn(cat("Use of ", op,
           " on expanded tensors is deprecated. Please clone() the tensor before performing this operation."
           " This also applies to advanced indexing e.g. tensor[indices] = tensor"));
  return true;
}

void write_out(const char* op, const Tensor& out, const Tensor& result, bool follow) {
  MICA_CHECK(out.device() == result.device(), op, "(): expected out on ", result.device(), " but got ", out.device());
  check_dtype_of_out(op, out.dtype(), result.dtype());
  if (!(out.sizes() == result.sizes())) {
    if (out.numel() > 0) {
      warn(cat("An output with one or more elements was resized since it had shape ", out.sizes(),
               ", which does not match the required output shape ", result.sizes(),
               ". This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they "
               "have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements "
               "with t.resize_(0)."));
    }
    out.resize_(result.sizes());
    if (follow && !(out.strides() == result.strides()) &&
        is_non_overlapping_and_dense(result.sizes(), result.strides()))
      out.impl()->set_geometry(result.sizes(), result.strides(), out.storage_offset());
  }
  NoGradGuard below;  // the operation records what happens to `out`, not this copy of its result
  out.copy_(result);
}

Out::Out(const char* op, const Tensor& given, TensorList inputs, bool in_place)
    : op_(op), given_(given), inputs_(inputs.begin(), inputs.end()), in_place_(in_place) {}

const Tensor& Out::set(IntArrayRef sizes, DType dtype, Device device, IntArrayRef strides) {
  if (given_.defined()) {
    MICA_CHECK(given_.device() == device, op_, "(): expected out on ", device, " but got ", given_.device());
    if (!in_place_) check_dtype_of_out(op_, given_.dtype(), dtype);
    MICA_CHECK(given_.dtype() == dtype || can_cast(dtype, given_.dtype()), "result type ", info(dtype).legacy,
               " can't be cast to the desired output type ", info(given_.dtype()).legacy);
    if (in_place_) {
      MICA_CHECK(given_.sizes() == sizes, "output with shape ", given_.sizes(), " doesn't match the broadcast shape ",
                 sizes, " (", op_, ")");
    }
    bool direct = given_.dtype() == dtype && given_.sizes() == sizes &&
                  !(given_.impl()->bits & tensor_bit::kLazyBits) &&
                  (given_.impl()->contiguous || !has_internal_overlap(given_.sizes(), given_.strides()));
    for (const Tensor& t : inputs_) direct = direct && !may_share_memory(t, given_);
    if (direct) {
      tensor_ = given_;
      return tensor_;
    }
  }
  // Where the kernel may be put off, the memory comes with what it holds.
  const bool promised = recording::Promises::active();
  tensor_ = strides.empty() ? empty_contiguous(sizes, dtype, device, promised)
                            : empty_with_strides(sizes, strides, dtype, device, promised);
  return tensor_;
}

const Tensor& Out::take(Tensor computed) {
  tensor_ = std::move(computed);
  return tensor_;
}

Tensor Out::finish() {
  if (given_.defined() && !given_.is_same(tensor_)) {
    MICA_CHECK(!in_place_ || given_.sizes() == tensor_.sizes(), "output with shape ", given_.sizes(),
               " doesn't match the broadcast shape ", tensor_.sizes(), " (", op_, ")");
    inspect::BecauseOf overlap(given_, inputs_);
    write_out(op_, given_, tensor_);
    return std::move(given_);
  }
  return std::move(tensor_);
}

}  // namespace mica
