// Operators of programs that are not in the table: questions about sizes and arithmetic on them, assertions, and a few
// of torch's operators in terms of others, as mica/_operators has them in Python.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mica/error.h"
#include "mica/layers.h"
#include "mica/ops.h"
#include "program/arithmetic.h"
#include "program/call.h"

namespace mica::program {

namespace {

// ---- sizes

template <Arithmetic what>
void two_numbers(Call& c) {
  c.give(compute(what, c.scalar(0), c.scalar(1)));
}

void negated(Call& c) { c.give(compute(Arithmetic::Sub, Scalar(0), c.scalar(0))); }
void inverted(Call& c) { c.give(!c.boolean(0)); }
void as_real(Call& c) { c.give(c.scalar(0).to<double>()); }

template <double (*nearby)(double)>
void as_whole(Call& c) {
  const Scalar& given = c.scalar(0);
  if (!given.is_floating()) return c.give(given.to<int64_t>());
  const double value = nearby(given.to<double>());
  MICA_CHECK(std::fabs(value) < 9.2e18, "the number ", value, " is too large for a size");
  c.give(static_cast<int64_t>(value));
}

void size_of(Call& c) { c.give(c.tensor(0).size(c.integer(1))); }
void stride_of(Call& c) { c.give(c.tensor(0).stride(c.integer(1))); }
void elements_of(Call& c) { c.give(c.tensor(0).numel()); }
void offset_of(Call& c) { c.give(c.tensor(0).storage_offset()); }
void item_of(Call& c) { c.give(c.tensor(0).item()); }

// ---- assertions

void assert_true(Call& c) { MICA_CHECK(c.scalar(0).to<double>() != 0, c.text(1)); }

void assert_tensor(Call& c) {
  MICA_CHECK(c.tensor(0).item().to<double>() != 0,
             c.size() > 1 ? c.text(1) : std::string_view("Expected Tensor with single nonzero value, but got zero"));
}

void assert_range(Call& c) {
  const int64_t value = c.scalar(0).to<int64_t>();
  MICA_CHECK(value >= c.integer_if(1).value_or(INT64_MIN) && value <= c.integer_if(2).value_or(INT64_MAX), "the size ",
             value, " is outside of the range that the program was exported for");
}

void assert_metadata(Call& c) {
  const Tensor& a = c.tensor(0);
  const auto sizes = c.integers_if(1);
  MICA_CHECK(!sizes || *sizes == a.sizes(), "Tensor sizes mismatch! Expected: ", *sizes, ", Got: ", a.sizes());
  const auto dtype = c.dtype_if(3);
  MICA_CHECK(!dtype || *dtype == a.dtype(), "Tensor dtype mismatch! Expected: ", *dtype, ", Got: ", a.dtype());
}

// ---- operators in terms of others

void itself(Call& c) { c.give(c.tensor(0)); }
void copied(Call& c) { c.give(c.tensor(0).clone()); }
void detached(Call& c) { c.give(c.tensor(0).detach()); }
void copied_into(Call& c) { c.give(c.tensor(0).clone().copy_(c.tensor(1), c.boolean(2))); }
void counted(Call& c) { c.give(mica::arange(0, c.scalar(0), 1, c.options(1))); }
void counted_from(Call& c) { c.give(mica::arange(c.scalar(0), c.scalar(1), 1, c.options(2))); }
void all_true(Call& c) { c.give(mica::all(c.tensor(0))); }
void any_true(Call& c) { c.give(mica::any(c.tensor(0))); }

std::optional<DType> widened(const Tensor& self, bool half_to_float) {
  return half_to_float ? DType::Float32 : self.dtype();
}
void softmax_of(Call& c) { c.give(mica::softmax(c.tensor(0), c.integer(1), widened(c.tensor(0), c.boolean(2)))); }
void log_softmax_of(Call& c) {
  c.give(mica::log_softmax(c.tensor(0), c.integer(1), widened(c.tensor(0), c.boolean(2))));
}

void safe_softmax(Call& c) {
  const Tensor& self = c.tensor(0);
  const Tensor hidden = mica::all(mica::eq(self, Scalar(-std::numeric_limits<double>::infinity())), c.integer(1), true);
  c.give(mica::softmax(self, c.integer(1), c.dtype_if(2)).masked_fill(hidden, 0));
}

void dropped(Call& c) {
  const Tensor& input = c.tensor(0);
  const double p = c.real(1);
  if (!c.boolean_if(2).value_or(true)) return c.give(std::tuple(input.clone(), mica::ones_like(input, DType::Bool)));
  const Tensor kept = mica::empty_like(input).bernoulli_(1 - p);
  c.give(std::tuple(input * kept * (p == 1 ? 0.0 : 1 / (1 - p)), kept.to(DType::Bool)));
}

void norm_without_training(Call& c) {
  c.give(mica::native_batch_norm(c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4), false, c.real(5),
                                 c.real(6)));
}
void norm_with_statistics(Call& c) {
  c.give(mica::native_batch_norm(c.tensor(0), c.tensor(1), c.tensor(2), c.tensor(3), c.tensor(4), c.boolean(5),
                                 c.real(6), c.real(7)));
}
void norm_of_the_batch(Call& c) {
  c.give(mica::native_batch_norm(c.tensor(0), c.tensor(1), c.tensor(2), {}, {}, c.boolean(3), c.real(4), c.real(5)));
}
void norm_with_new_statistics(Call& c) {
  const Tensor mean = c.tensor(3).clone(), var = c.tensor(4).clone();
  const auto [out, save_mean, save_rstd] =
      mica::native_batch_norm(c.tensor(0), c.tensor(1), c.tensor(2), mean, var, c.boolean(5), c.real(6), c.real(7));
  c.give(std::tuple(out, save_mean, save_rstd, mean, var));
}

void trilinear(Call& c) {
  Tensor product;
  for (size_t i = 0; i < 3; ++i) {
    Tensor part = c.tensor(i);
    for (const int64_t dim : c.integers(3 + i)) part = part.unsqueeze(dim);
    product = product.defined() ? product * part : part;
  }
  c.give(c.integers(6).empty() ? product : product.sum(c.integers(6)));
}

// The operators x & y and x &= y.
template <auto function>
void with_tensor(Call& c) {
  c.give(function(c.tensor(0), c.tensor(1)));
}
template <auto function>
void with_number(Call& c) {
  c.give(function(c.tensor(0), c.scalar(1)));
}
#define MICA_BITS(name, function)                                                                     \
  {"__" name "__.Tensor(Tensor self, Tensor other) -> Tensor",                                        \
   with_tensor<static_cast<Tensor (*)(const Tensor&, const Tensor&)>(mica::function)>},               \
      {"__" name "__.Scalar(Tensor self, Scalar other) -> Tensor",                                    \
       with_number<static_cast<Tensor (*)(const Tensor&, const Scalar&)>(mica::function)>},           \
      {"__i" name "__.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",                           \
       with_tensor<static_cast<const Tensor& (*)(const Tensor&, const Tensor&)>(mica::function##_)>}, \
      {"__i" name "__.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",                           \
       with_number<static_cast<const Tensor& (*)(const Tensor&, const Scalar&)>(mica::function##_)>},

void dimension_moved(Call& c) {
  const int64_t from = c.integer(1), to = c.integer(2);
  c.give(mica::movedim(c.tensor(0), IntArrayRef(from), IntArrayRef(to)));
}
void grid_of(Call& c) { c.give(mica::meshgrid(c.tensors(0), "ij")); }
void reflected(Call& c) { c.give(mica::pad(c.tensor(0), c.integers(1), "reflect")); }
void replicated(Call& c) { c.give(mica::pad(c.tensor(0), c.integers(1), "replicate")); }

// upsample_*, by the `mode` of F.interpolate. Where scales come with a size, they only say how places are found.
void resize(Call& c, const char* mode, bool has_corners, bool antialias = false) {
  const auto size = c.integers_if(1);
  const std::optional<bool> corners = has_corners ? c.boolean_if(2) : std::nullopt;
  const auto scales = c.reals_if(has_corners ? 3 : 2);
  MICA_CHECK(size || scales, "an interpolation has neither a size nor scales");
  c.give(mica::interpolate(c.tensor(0), size, size ? std::nullopt : scales, mode, corners, std::nullopt, antialias));
}
void resize_by(Call& c, const char* mode, bool has_corners, size_t dims, bool antialias = false) {
  const IntArrayRef size = c.integers(1);
  std::vector<double> scales;
  for (size_t d = 0; d < dims; ++d) scales.push_back(c.real_if((has_corners ? 3 : 2) + d).value_or(0.0));
  const bool corners = has_corners && c.boolean(2);
  const Tensor& self = c.tensor(0);
  const bool given = std::any_of(scales.begin(), scales.end(), [](double s) { return s != 0; });
  if (given && self.dim() == static_cast<int64_t>(dims) + 2 && size.size() == dims)
    return c.give(mica::_upsample(self, size, mode, corners, antialias, scales));
  c.give(mica::interpolate(self, size, std::nullopt, mode, has_corners ? std::optional(corners) : std::nullopt,
                           std::nullopt, antialias));
}

#define MICA_RESIZE(name, mode, corners, dims)           \
  void name##_vec(Call& c) { resize(c, mode, corners); } \
  void name(Call& c) { resize_by(c, mode, corners, dims); }
MICA_RESIZE(nearest1d, "nearest", false, 1)
MICA_RESIZE(nearest2d, "nearest", false, 2)
MICA_RESIZE(nearest3d, "nearest", false, 3)
MICA_RESIZE(exact1d, "nearest-exact", false, 1)
MICA_RESIZE(exact2d, "nearest-exact", false, 2)
MICA_RESIZE(exact3d, "nearest-exact", false, 3)
MICA_RESIZE(linear1d, "linear", true, 1)
MICA_RESIZE(bilinear2d, "bilinear", true, 2)
MICA_RESIZE(bicubic2d, "bicubic", true, 2)
MICA_RESIZE(trilinear3d, "trilinear", true, 3)
#undef MICA_RESIZE
void smooth_bilinear2d_vec(Call& c) { resize(c, "bilinear", true, true); }
void smooth_bilinear2d(Call& c) { resize_by(c, "bilinear", true, 2, true); }
void smooth_bicubic2d_vec(Call& c) { resize(c, "bicubic", true, true); }
void smooth_bicubic2d(Call& c) { resize_by(c, "bicubic", true, 2, true); }

#define MICA_OPTIONS "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
constexpr Operator kOperators[] = {
    {"_operator.add(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Add>},
    {"_operator.sub(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Sub>},
    {"_operator.mul(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Mul>},
    {"_operator.floordiv(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::FloorDiv>},
    {"_operator.truediv(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::TrueDiv>},
    {"_operator.mod(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Mod>},
    {"_operator.pow(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Pow>},
    {"_operator.eq(Scalar a, Scalar b) -> bool", two_numbers<Arithmetic::Eq>},
    {"_operator.ne(Scalar a, Scalar b) -> bool", two_numbers<Arithmetic::Ne>},
    {"_operator.lt(Scalar a, Scalar b) -> bool", two_numbers<Arithmetic::Lt>},
    {"_operator.le(Scalar a, Scalar b) -> bool", two_numbers<Arithmetic::Le>},
    {"_operator.gt(Scalar a, Scalar b) -> bool", two_numbers<Arithmetic::Gt>},
    {"_operator.ge(Scalar a, Scalar b) -> bool", two_numbers<Arithmetic::Ge>},
    {"_operator.and_(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::And>},
    {"_operator.or_(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Or>},
    {"_operator.neg(Scalar a) -> Scalar", negated},
    {"torch.sym_max(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Max>},
    {"torch.sym_min(Scalar a, Scalar b) -> Scalar", two_numbers<Arithmetic::Min>},
    {"torch.sym_not(bool a) -> bool", inverted},
    {"torch.sym_float(Scalar a) -> float", as_real},
    {"torch.sym_int(Scalar a) -> int", as_whole<std::trunc>},
    {"math.ceil(Scalar a) -> int", as_whole<std::ceil>},
    {"builtins.round(Scalar a) -> int", as_whole<std::nearbyint>},  // halves to the even number, as in Python
    {"sym_size.int(Tensor self, int dim) -> SymInt", size_of},
    {"sym_stride.int(Tensor self, int dim) -> SymInt", stride_of},
    {"sym_numel(Tensor self) -> SymInt", elements_of},
    {"sym_storage_offset(Tensor self) -> SymInt", offset_of},
    {"item(Tensor self) -> Scalar", item_of},
    {"_local_scalar_dense(Tensor self) -> Scalar", item_of},
    {"_assert_scalar(Scalar self, str assert_msg) -> ()", assert_true},
    {"_assert_async(Tensor self) -> ()", assert_tensor},
    {"_assert_async.msg(Tensor self, str assert_msg) -> ()", assert_tensor},
    {"sym_constrain_range(Scalar size, *, int? min=None, int? max=None) -> ()", assert_range},
    {"sym_constrain_range_for_size(Scalar size, *, int? min=None, int? max=None) -> ()", assert_range},
    {"_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, "
     "Device? device=None, Layout? layout=None) -> ()",
     assert_metadata},
    {"lift(Tensor(a) self) -> Tensor(a)", itself},
    {"lift_fresh(Tensor(a) self) -> Tensor(a)", itself},
    {"lift_fresh_copy(Tensor self) -> Tensor", copied},
    {"detach(Tensor(a) self) -> Tensor(a)", detached},
    {"detach_(Tensor(a!) self) -> Tensor(a!)", itself},  // detach: nothing is recorded here
    {"copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", copied_into},
    {"arange(Scalar end, *, " MICA_OPTIONS ") -> Tensor", counted},
    {"arange.start(Scalar start, Scalar end, *, " MICA_OPTIONS ") -> Tensor", counted_from},
    // clang-format off
    MICA_BITS("and", bitwise_and) MICA_BITS("or", bitwise_or) MICA_BITS("xor", bitwise_xor)
    MICA_BITS("lshift", bitwise_left_shift) MICA_BITS("rshift", bitwise_right_shift)
    // clang-format on
    {"_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, int "
     "unroll_dim=1) -> Tensor",
     trilinear},
    {"movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)", dimension_moved},
    {"moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)", dimension_moved},
    {"meshgrid(Tensor[] tensors) -> Tensor[]", grid_of},
    {"reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor", reflected},
    {"reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor", reflected},
    {"reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor", reflected},
    {"replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor", replicated},
    {"replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor", replicated},
    {"replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor", replicated},
    {"_is_all_true(Tensor self) -> Tensor", all_true},
    {"_is_any_true(Tensor self) -> Tensor", any_true},
    {"_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", softmax_of},
    {"_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", log_softmax_of},
    {"_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", safe_softmax},
    {"native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", dropped},
    {"_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor "
     "running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     norm_without_training},
    {"_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) "
     "running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     norm_with_statistics},
    {"_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, "
     "float "
     "eps) -> (Tensor, Tensor, Tensor)",
     norm_of_the_batch},
    {"_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor "
     "running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
     norm_with_new_statistics},
#define MICA_UPSAMPLES(op, function, corners, list, scales)                                                      \
  {op ".vec(Tensor input, SymInt[]? output_size" corners ", float[]? scale_factors) -> Tensor", function##_vec}, \
      {op "(Tensor self, SymInt[" list "] output_size" corners ", " scales ") -> Tensor", function},
    // clang-format off
    MICA_UPSAMPLES("upsample_nearest1d", nearest1d, "", "1", "float? scales=None")
    MICA_UPSAMPLES("upsample_nearest2d", nearest2d, "", "2", "float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("upsample_nearest3d", nearest3d, "", "3", "float? scales_d=None, float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("_upsample_nearest_exact1d", exact1d, "", "1", "float? scales=None")
    MICA_UPSAMPLES("_upsample_nearest_exact2d", exact2d, "", "2", "float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("_upsample_nearest_exact3d", exact3d, "", "3", "float? scales_d=None, float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("upsample_linear1d", linear1d, ", bool align_corners", "1", "float? scales=None")
    MICA_UPSAMPLES("upsample_bilinear2d", bilinear2d, ", bool align_corners", "2", "float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("_upsample_bilinear2d_aa", smooth_bilinear2d, ", bool align_corners", "2", "float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("_upsample_bicubic2d_aa", smooth_bicubic2d, ", bool align_corners", "2", "float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("upsample_bicubic2d", bicubic2d, ", bool align_corners", "2", "float? scales_h=None, float? scales_w=None")
    MICA_UPSAMPLES("upsample_trilinear3d", trilinear3d, ", bool align_corners", "3", "float? scales_d=None, float? scales_h=None, float? scales_w=None")
// clang-format on
#undef MICA_UPSAMPLES
};
#undef MICA_BITS
#undef MICA_OPTIONS

}  // namespace

ArrayRef<Operator> hand_written_operators() { return kOperators; }

}  // namespace mica::program
