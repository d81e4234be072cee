// One curve in many formats, and the bits of one number.
#include <cmath>
#include <cstring>

#include "instruments.h"

namespace mica::lab {

namespace {

struct Format {
  DType dtype;
  int exponent, mantissa;  // bits; an integer has none of either
};
constexpr Format kFormats[] = {{DType::Float64, 11, 52}, {DType::Float32, 8, 23},      {DType::Float16, 5, 10},
                               {DType::BFloat16, 8, 7},  {DType::Float8_e4m3fn, 4, 3}, {DType::Float8_e5m2, 5, 2},
                               {DType::Int8, 0, 0}};
const Format& format(DType t) {
  for (const Format& f : kFormats)
    if (f.dtype == t) return f;
  fail(ErrorKind::Value, cat("precision shows floating-point formats and int8, not ", t));
}

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

// The value as a format holds it, read back as float64. An integer is quantized with one scale for the whole curve.
Tensor through(const Tensor& exact, DType t, double scale) {
  if (t != DType::Int8) return exact.to(t).to(DType::Float64);
  return exact.div(scale).round().clamp(Scalar(-128), Scalar(127)).to(t).to(DType::Float64).mul(scale);
}

uint64_t bits_of(const Tensor& one) {
  uint64_t bits = 0;
  std::memcpy(&bits, one.data_ptr(), static_cast<size_t>(one.element_size()));
  return bits;
}
double value_of(uint64_t bits, DType t) {
  const Tensor one = mica::zeros({1}, TensorOptions(t));
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
  const Tensor t = mica::linspace(0, 1, points, TensorOptions(DType::Float64));
  const Tensor exact = curve->of(t).mul(amplitude);
  const double most = exact.abs().max().item<double>();
  const double scale = most > 0 ? most / 127 : 1;
  Json rows = Json::array();
  for (const Json& entry : question.at("dtypes")) {
    const DType dtype = dtype_named(entry.get<std::string>());
    const Format& f = format(dtype);
    const Tensor held = through(exact, dtype, scale);
    const Tensor error = held.sub(exact).abs();
    Json shown = Json::array(), differences = Json::array();
    const double* v = held.data_ptr<double>();
    const double* d = error.data_ptr<double>();
    int64_t clipped = 0, levels = 1;
    double worst = 0;
    for (int64_t i = 0; i < points; ++i) {
      shown.push_back(number(v[i]));
      differences.push_back(number(d[i]));
      if (!std::isfinite(v[i])) {
        ++clipped;
      } else {
        worst = std::max(worst, d[i]);
      }
      levels += i && v[i] != v[i - 1];
    }
    rows.push_back({{"dtype", name(dtype)},
                    {"bits", element_size(dtype) * 8},
                    {"exponent", f.exponent},
                    {"mantissa", f.mantissa},
                    {"values", shown},
                    {"errors", differences},
                    {"clipped", clipped},
                    {"steps", levels},
                    {"worst", number(worst)},
                    {"scale", dtype == DType::Int8 ? number(scale) : Json(nullptr)}});
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
  const DType dtype = dtype_named(question.at("dtype").get<std::string>());
  const Format& f = format(dtype);
  const int width = static_cast<int>(element_size(dtype)) * 8;
  uint64_t raw = 0;
  if (question.contains("bits")) {
    const std::string given = question.at("bits").get<std::string>();
    MICA_CHECK(static_cast<int>(given.size()) == width, dtype, " has ", width, " bits, not ", given.size());
    for (const char c : given) {
      MICA_CHECK(c == '0' || c == '1', "bits are 0 and 1, not '", c, "'");
      raw = raw << 1 | static_cast<uint64_t>(c == '1');
    }
  } else {
    const Json& v = question.at("value");
    const double value = v.is_string() ? (v == "nan" ? NAN : v == "-inf" ? -INFINITY : INFINITY) : v.get<double>();
    const Tensor exact = mica::full({1}, value, TensorOptions(DType::Float64));
    const bool integer = dtype == DType::Int8;
    raw = bits_of((integer ? exact.round().clamp(Scalar(-128), Scalar(127)) : exact).to(dtype));
  }
  std::string text;
  for (int i = width - 1; i >= 0; --i) text += raw >> i & 1 ? '1' : '0';
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  Json answer = {{"dtype", name(dtype)}, {"bits", text},           {"value", number(value_of(raw, dtype))},
                 {"width", width},       {"exponent", f.exponent}, {"mantissa", f.mantissa}};
  // The neighbours of a number are one unit of its bits away; of a negative one the other way round.
  const bool negative = raw >> (width - 1) & 1;
  const bool grows = !negative || dtype == DType::Int8;
  answer["above"] = number(value_of((raw + (grows ? 1 : -1)) & mask, dtype));
  answer["below"] = number(value_of((raw - (grows ? 1 : -1)) & mask, dtype));
  return answer;
}

}  // namespace mica::lab
