#include "core/print_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace mica {

namespace {

std::string printf_text(const char* format, int64_t precision, double value) {
  if (std::isnan(value)) return "nan";  // C would show the sign of a NaN
  const int digits = static_cast<int>(std::min<int64_t>(precision, 1000));
  const int size = std::snprintf(nullptr, 0, format, digits, value);
  std::string text(static_cast<size_t>(size), '\0');
  std::snprintf(text.data(), text.size() + 1, format, digits, value);
  return text;
}

void pad(std::string& text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
}

// One style for all numbers of a tensor, chosen by those that are finite and not zero: "3." if they are whole,
// scientific if they are very large, very small or far apart, else with a fixed number of digits.
class RealStyle {
 public:
  RealStyle(const std::vector<double>& values, const PrintOptions& options) : precision_(options.precision) {
    double smallest = INFINITY, largest = 0;
    bool any = false;
    for (double value : values) {
      if (!counts(value)) continue;
      any = true;
      smallest = std::min(smallest, std::fabs(value));
      largest = std::max(largest, std::fabs(value));
      whole_ = whole_ && value == std::ceil(value);
    }
    if (!any) return;
    const bool extreme = largest / smallest > 1000. || largest > 1e8 || smallest < 1e-4;
    scientific_ = options.sci_mode.value_or(extreme);
    for (double value : values)
      if (counts(value)) width_ = std::max(width_, plain(value).size());
  }

  size_t width() const { return width_; }

  std::string text(double value) const {
    std::string s = plain(value);
    pad(s, width_);
    return s;
  }

 private:
  static bool counts(double value) { return value != 0 && std::isfinite(value); }

  std::string plain(double value) const {
    if (scientific_) return printf_text("%.*e", precision_, value);
    if (!whole_) return printf_text("%.*f", precision_, value);
    std::string s = printf_text("%.*f", 0, value);
    if (std::isfinite(value)) s += '.';
    return s;
  }

  int64_t precision_;
  size_t width_ = 1;
  bool whole_ = true;
  bool scientific_ = false;
};

Cells format_reals(const std::vector<Scalar>& values, const PrintOptions& options) {
  std::vector<double> reals;
  reals.reserve(values.size());
  for (const Scalar& value : values) reals.push_back(value.cast<double>());
  const RealStyle style(reals, options);
  Cells cells;
  cells.width = static_cast<int64_t>(style.width());
  for (double value : reals) cells.texts.push_back(style.text(value));
  return cells;
}

Cells format_complex(const std::vector<Scalar>& values, const PrintOptions& options) {
  std::vector<double> reals, imags;
  for (const Scalar& value : values) {
    const complex128 z = value.cast<complex128>();
    reals.push_back(z.real());
    imags.push_back(z.imag());
  }
  const RealStyle real_style(reals, options), imag_style(imags, options);
  Cells cells;
  cells.width = static_cast<int64_t>(real_style.width() + imag_style.width() + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    std::string imag = imag_style.text(imags[i]);
    imag.erase(0, imag.find_first_not_of(' '));
    const char* sign = imag[0] == '-' ? "" : "+";
    cells.texts.push_back(real_style.text(reals[i]) + sign + imag + "j");
  }
  return cells;
}

Cells format_integers(const std::vector<Scalar>& values) {
  Cells cells;
  size_t width = 1;
  for (const Scalar& value : values) {
    cells.texts.push_back(to_string(value));
    width = std::max(width, cells.texts.back().size());
  }
  for (std::string& text : cells.texts) pad(text, width);
  cells.width = static_cast<int64_t>(width);
  return cells;
}

}  // namespace

Cells format_numbers(const std::vector<Scalar>& values, DType dtype, const PrintOptions& options) {
  if (is_complex(dtype)) return format_complex(values, options);
  return is_floating(dtype) ? format_reals(values, options) : format_integers(values);
}

}  // namespace mica
