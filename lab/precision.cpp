// One curve in many formats, and the bits of one number.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "instruments.h"

namespace mica::lab {

namespace {

struct NumberFormat {
  const char* name;
  DType dtype;             // of an element; pairs of 4-bit floats are shown one by one
  int exponent, mantissa;  // bits; an integer has none of either
  int64_t block = 0;       // how many numbers share a scale; 0: none do
};
constexpr NumberFormat kNumberFormats[] = {{"float64", DType::Float64, 11, 52},
                                           {"float32", DType::Float32, 8, 23},
                                           {"float16", DType::Float16, 5, 10},
                                           {"bfloat16", DType::BFloat16, 8, 7},
                                           {"float8_e4m3fn", DType::Float8_e4m3fn, 4, 3},
                                           {"float8_e5m2", DType::Float8_e5m2, 5, 2},
                                           {"mxfp8", DType::Float8_e4m3fn, 4, 3, 32},
                                           {"mxfp4", DType::Float4_e2m1fn_x2, 2, 1, 32},
                                           {"nvfp4", DType::Float4_e2m1fn_x2, 2, 1, 16},
                                           {"int8", DType::Int8, 0, 0}};
const NumberFormat& number_format(std::string_view wanted) {
  for (const NumberFormat& f : kNumberFormats)
    if (wanted == f.name) return f;
  fail(ErrorKind::Value, cat("precision shows floating-point formats and int8, not ", wanted));
}

bool is_four_bits(const NumberFormat& f) { return f.dtype == DType::Float4_e2m1fn_x2; }
int width_of(const NumberFormat& f) { return is_four_bits(f) ? 4 : static_cast<int>(element_size(f.dtype)) * 8; }

struct Curve {
  const char* name;
  Tensor (*of)(const Tensor& t);  // of a number between 0 and 1
};
const Curve kCurves[] = {
    {"sine", [](const Tensor& t) { return t.mul(2 * M_PI).sin(); }},
    {"ramp", [](const Tensor& t) { return t.mul(2).sub(1); }},
    {"exponential", [](const Tensor& t) { return t.mul(12).sub(12).exp(); }},
    {"tanh", [](const Tensor& t) { return t.mul(8).sub(4).tanh(); }},
    {"bell", [](const Tensor& t) { return t.mul(6).sub(3).pow(2).mul(-1).exp(); }},
    {"small steps", [](const Tensor& t) { return t.mul(0.02).add(1); }},
};

// The elements of a format, read back as float64.
Tensor held_in(const Tensor& exact, const NumberFormat& f) {
  if (!is_four_bits(f)) return exact.to(f.dtype).to(DType::Float64);
  const Tensor held = exact.clone();
  double* v = held.data_ptr<double>();
  for (int64_t i = 0; i < held.numel(); ++i)
    v[i] = float4_e2m1fn_to_float(float_to_float4_e2m1fn(static_cast<float>(v[i])));
  return held;
}

// The scale of every number. MX takes the power of two that brings the largest of a block to the largest exponent of an
// element; NVFP4 takes the 8-bit float that brings it to the largest element, and one float32 for all blocks before.
Tensor block_scales(const Tensor& exact, const NumberFormat& f, double most) {
  const Tensor scales = mica::ones_like(exact);
  const double* v = exact.data_ptr<double>();
  double* s = scales.data_ptr<double>();
  const double whole = most > 0 ? most / (6 * 448) : 1;
  for (int64_t begin = 0; begin < exact.numel(); begin += f.block) {
    const int64_t end = std::min(begin + f.block, exact.numel());
    double largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(v[i]));
    double scale = 1;
    if (f.block == 16) {
      scale = whole * float8_e4m3fn_to_float(float_to_float8_e4m3fn(static_cast<float>(largest / 6 / whole)));
    } else if (largest > 0) {
      const int exponent = std::ilogb(largest) - (is_four_bits(f) ? 2 : 8);
      scale = float8_e8m0fnu_to_float(float_to_float8_e8m0fnu(static_cast<float>(std::ldexp(1.0, exponent))));
    }
    for (int64_t i = begin; i < end; ++i) s[i] = scale;
  }
  return scales;
}

// The value as a format holds it, read back as float64. An integer is quantized with one scale for the whole curve.
Tensor through(const Tensor& exact, const NumberFormat& f, double scale, const Tensor& scales) {
  if (f.block) return held_in(mica::where(scales.eq(0), mica::zeros_like(exact), exact.div(scales)), f).mul(scales);
  if (f.dtype != DType::Int8) return held_in(exact, f);
  if (scale == 0) return held_in(exact, f);  // as .to(int8) does it: the fraction is cut off
  return held_in(exact.div(scale).round().clamp(Scalar(-128), Scalar(127)), f).mul(scale);
}

// The largest number that a format holds; of one with blocks, times the scale.
double largest_of(const NumberFormat& f) {
  if (is_four_bits(f)) return 6;
  if (f.dtype == DType::Int8) return 127;
  const double top = f.dtype == DType::Float8_e4m3fn ? 1.75 : 2 - std::ldexp(1.0, -f.mantissa);
  const int bias = (1 << (f.exponent - 1)) - 1;
  return std::ldexp(top, f.dtype == DType::Float8_e4m3fn ? 8 : bias);
}

uint64_t bits_of(const Tensor& one) {
  uint64_t bits = 0;
  std::memcpy(&bits, one.data_ptr(), static_cast<size_t>(one.element_size()));
  return bits;
}
double value_of(uint64_t bits, const NumberFormat& f) {
  if (is_four_bits(f)) return float4_e2m1fn_to_float(static_cast<uint8_t>(bits));
  const Tensor one = mica::zeros({1}, TensorOptions(f.dtype));
  std::memcpy(one.data_ptr(), &bits, static_cast<size_t>(one.element_size()));
  return one.to(DType::Float64).item<double>();
}

}  // namespace

Json precision(const Json& question) {
  NoGradGuard below;
  const std::string wanted = question.value("curve", "sine");
  const double amplitude = question.at("amplitude").get<double>();
  const auto points = question.value("points", int64_t{257});
  MICA_CHECK(points >= 2 && points <= 1025, "a curve has 2 to 1025 points");
  MICA_CHECK(std::isfinite(amplitude), "the amplitude is a finite number");
  const Curve* curve = nullptr;
  Json names = Json::array();
  for (const Curve& c : kCurves) {
    names.push_back(c.name);
    if (wanted == c.name) curve = &c;
  }
  MICA_CHECK(curve, "no curve is named '", wanted, "'");
  // A part of the curve may be asked for: then it is a lens, and the scales are still those of the whole.
  const double from = question.value("from", 0.0), to = question.value("to", 1.0);
  MICA_CHECK(from >= 0 && to <= 1 && from < to, "a part of the curve lies between 0 and 1");
  const Tensor t = mica::linspace(from, to, points, TensorOptions(DType::Float64));
  const Tensor exact = curve->of(t).mul(amplitude);
  const Tensor whole = curve->of(mica::linspace(0, 1, 257, TensorOptions(DType::Float64))).mul(amplitude);
  const double most = whole.abs().max().item<double>();
  const double scale = question.value("truncate", false) ? 0 : most > 0 ? most / 127 : 1;
  Json rows = Json::array();
  for (const Json& entry : question.at("dtypes")) {
    const NumberFormat& f = number_format(entry.get<std::string>());
    const Tensor scales = f.block ? block_scales(exact, f, most) : Tensor();
    const Tensor held = through(exact, f, scale, scales);
    const Tensor error = held.sub(exact).abs();
    Json shown = Json::array(), differences = Json::array(), factors = Json::array(), relative = Json::array();
    const double* v = held.data_ptr<double>();
    const double* d = error.data_ptr<double>();
    const double* x = exact.data_ptr<double>();
    int64_t infinite = 0, undefined = 0, saturated = 0;
    double worst = 0, worst_relative = 0;
    std::set<double> levels;
    for (int64_t i = 0; i < points; ++i) {
      shown.push_back(number(v[i]));
      differences.push_back(number(d[i]));
      if (f.block) factors.push_back(number(scales.data_ptr<double>()[i]));
      // A number that is exact has no error to show on a logarithmic scale.
      const double part = x[i] == 0 || !std::isfinite(v[i]) ? 0 : d[i] / std::abs(x[i]);
      relative.push_back(part > 0 ? Json(part) : Json(nullptr));
      infinite += std::isinf(v[i]);
      undefined += std::isnan(v[i]);
      if (!std::isfinite(v[i])) continue;
      const double by = f.block ? scales.data_ptr<double>()[i] : f.dtype == DType::Int8 && scale > 0 ? scale : 1;
      saturated += std::abs(x[i]) > largest_of(f) * by * (1 + 1e-9);
      worst = std::max(worst, d[i]);
      worst_relative = std::max(worst_relative, part);
      levels.insert(v[i]);
    }
    rows.push_back({{"dtype", f.name},
                    {"bits", width_of(f)},
                    {"exponent", f.exponent},
                    {"mantissa", f.mantissa},
                    {"values", shown},
                    {"errors", differences},
                    {"relative", relative},
                    {"infinite", infinite},
                    {"undefined", undefined},
                    {"saturated", saturated},
                    {"largest", largest_of(f)},
                    {"levels", levels.size()},
                    {"worst", number(worst)},
                    {"worst_relative", number(worst_relative)},
                    {"scale", f.dtype == DType::Int8 && scale > 0 ? number(scale) : Json(nullptr)},
                    {"block", f.block},
                    {"scales", f.block ? factors : Json(nullptr)}});
  }
  Json truth = Json::array(), at = Json::array();
  for (int64_t i = 0; i < points; ++i) {
    truth.push_back(number(exact.data_ptr<double>()[i]));
    at.push_back(t.data_ptr<double>()[i]);
  }
  return {{"curves", names}, {"t", at}, {"exact", truth}, {"rows", rows}, {"most", number(most)}};
}

// The bits of a number in a format: of a value, or of bits given as a string of 0 and 1.
Json bits(const Json& question) {
  NoGradGuard below;
  const NumberFormat& f = number_format(question.at("dtype").get<std::string>());
  const int width = width_of(f);
  uint64_t raw = 0;
  if (question.contains("bits")) {
    const std::string given = question.at("bits").get<std::string>();
    MICA_CHECK(static_cast<int>(given.size()) == width, f.name, " has ", width, " bits, not ", given.size());
    for (const char c : given) {
      MICA_CHECK(c == '0' || c == '1', "bits are 0 and 1, not '", c, "'");
      raw = raw << 1 | static_cast<uint64_t>(c == '1');
    }
  } else {
    const Json& v = question.at("value");
    const double value = v.is_string() ? (v == "nan" ? NAN : v == "-inf" ? -INFINITY : INFINITY) : v.get<double>();
    const Tensor exact = mica::full({1}, value, TensorOptions(DType::Float64));
    const bool integer = f.dtype == DType::Int8;
    raw = is_four_bits(f) ? float_to_float4_e2m1fn(static_cast<float>(value))
                          : bits_of((integer ? exact.round().clamp(Scalar(-128), Scalar(127)) : exact).to(f.dtype));
  }
  std::string text;
  for (int i = width - 1; i >= 0; --i) text += raw >> i & 1 ? '1' : '0';
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  Json answer = {{"dtype", f.name}, {"bits", text},           {"value", number(value_of(raw, f))},
                 {"width", width},  {"exponent", f.exponent}, {"mantissa", f.mantissa}};
  // The neighbours of a number are one unit of its bits away, counted from zero in both directions; at the ends, and of
  // what is no number, there are none.
  const uint64_t sign = uint64_t{1} << (width - 1);
  const bool integer = f.dtype == DType::Int8;
  const auto neighbour = [&](int64_t by) -> Json {
    const double here = value_of(raw, f);
    if (std::isnan(here) || (std::isinf(here) && (here > 0) == (by > 0))) return nullptr;
    if (integer) return here + by > 127 || here + by < -128 ? Json(nullptr) : Json(here + by);
    const auto magnitude = static_cast<int64_t>(raw & (sign - 1));
    const int64_t at = (raw & sign ? -magnitude : magnitude) + by;
    const uint64_t size = static_cast<uint64_t>(at < 0 ? -at : at);
    if (size >= sign) return nullptr;
    const double next = value_of((size | (at < 0 ? sign : 0)) & mask, f);
    return std::isnan(next) ? Json(nullptr) : number(next);
  };
  answer["above"] = neighbour(1);
  answer["below"] = neighbour(-1);
  return answer;
}

}  // namespace mica::lab
