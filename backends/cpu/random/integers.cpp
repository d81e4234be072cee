// random_, randint and randperm: remainders of the engine's words.
#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "backends/cpu/random/checks.h"
#include "backends/cpu/random/draw.h"
#include "backends/cpu/random/random.h"

namespace mica::cpu {
namespace {

// x % d without a division, for 32-bit operands (Lemire, Kaser and Kurz, "Faster remainder by direct computation").
class Remainder32 {
 public:
  explicit Remainder32(uint32_t divisor) : divisor_(divisor), inverse_(~0ull / divisor + 1) {}
  uint32_t operator()(uint32_t x) const {
    return static_cast<uint32_t>((static_cast<unsigned __int128>(inverse_ * x) * divisor_) >> 64);
  }

 private:
  uint64_t divisor_;
  uint64_t inverse_;
};

template <class T>
T from_int64(int64_t value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else if constexpr (sizeof(T) == 2) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Draws numel words and writes map(word) for each.
template <class Word, class T, class Map>
void map_words(T* out, int64_t numel, const Generator& generator, const Map& map) {
  CpuGenerator& source = cpu_generator(generator);
  std::lock_guard lock(source.mutex);
  draw_blocks<Word>(source.engine, numel, [&](const Word* words, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[first + i] = map(words[i]);
  });
}

template <class T>
void fill_range(T* out, int64_t numel, const RandomRange& range, const Generator& generator) {
  const auto base = static_cast<uint64_t>(range.base);
  const auto at = [base](uint64_t offset) { return from_int64<T>(static_cast<int64_t>(base + offset)); };
  const uint64_t count = range.count;
  // Beyond this the remainder of a 32-bit word would be skewed by more than torch accepts.
  constexpr uint64_t kWide = 1ull << 28;
  if (count == 0) {
    map_words<uint64_t>(out, numel, generator, at);
  } else if (count >= kWide && std::has_single_bit(count)) {
    map_words<uint64_t>(out, numel, generator, [=](uint64_t word) { return at(word & (count - 1)); });
  } else if (count >= kWide) {
    map_words<uint64_t>(out, numel, generator, [=](uint64_t word) { return at(word % count); });
  } else if (std::has_single_bit(count)) {
    map_words<uint32_t>(out, numel, generator, [=](uint32_t word) { return at(word & (count - 1)); });
  } else {
    const Remainder32 remainder(static_cast<uint32_t>(count));
    map_words<uint32_t>(out, numel, generator, [=](uint32_t word) { return at(remainder(word)); });
  }
}

// ---- the bounds of random_(from, to) --------------------------------------------------------------------------

// Torch's rule for an end of the range that the dtype cannot hold: it is moved inwards, by the spacing of the dtype's
// values there, to a value that the dtype can hold.
template <class T>
int64_t spacing_at(int64_t value) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int exponent = static_cast<int>(std::bit_width(magnitude)) - 1;
  return int64_t{1} << (exponent - FloatRange<T>::kDigits + 1);
}
// What a conversion to int64 gives on x86 when the value is too large.
inline int64_t saturated(double value) {
  return value >= -0x1p63 && value < 0x1p63 ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min();
}
template <class T>
int64_t rounded(int64_t value) {
  return saturated(static_cast<double>(from_int64<T>(value)));
}
template <class T>
int64_t move_from_up(int64_t from) {
  const auto after = static_cast<int64_t>(static_cast<uint64_t>(from) + 1);
  const int64_t next = rounded<T>(after);
  return next < from ? next + spacing_at<T>(after) : from;
}
template <class T>
int64_t move_to_down(int64_t to) {
  const int64_t last = rounded<T>(to - 1);
  return last >= to ? last - spacing_at<T>(to - 1) : to;
}

void check_range(DType dtype, int64_t from, int64_t last, std::string& warning) {
  const auto check = [dtype](bool ok, const char* which) {
    MICA_CHECK(ok, which, " is out of bounds for ", cpp_name(dtype));
  };
  if (is_floating(dtype)) {
    dispatch_floating(dtype, "check_random_fp_bounds", [&]<class T>(T) {
      constexpr double max = FloatRange<T>::kMax;
      constexpr int digits = FloatRange<T>::kDigits;
      const auto in_bounds = [](int64_t v) { return static_cast<double>(v) >= -max && static_cast<double>(v) <= max; };
      check(in_bounds(from), "from");
      check(in_bounds(last), "to - 1");
      constexpr int64_t exact = int64_t{1} << digits;
      for (const auto& [value, which] : {std::pair(from, "from"), std::pair(last, "to - 1")}) {
        if (value >= -exact && value <= exact) continue;
        if (!warning.empty()) warning += '\n';
        warning += cat(which, " is out of bounds [-(2^", digits, "), 2^", digits, "]. Due to precision limitations ",
                       cpp_name(dtype),
                       " can support discrete uniform distribution only within this range. This warning will become "
                       "an error in version 1.7 release, please fix the code in advance");
      }
    });
    return;
  }
  int64_t min = 0;
  int64_t max = 1;
  if (dtype == DType::UInt64) {
    max = std::numeric_limits<int64_t>::max();
  } else if (dtype != DType::Bool) {
    const int bits = static_cast<int>(8 * element_size(dtype)) - (info(dtype).is_signed ? 1 : 0);
    max = static_cast<int64_t>((1ull << bits) - 1);
    min = info(dtype).is_signed ? -max - 1 : 0;
  }
  check(from >= min && from <= max, "from");
  check(last >= min && last <= max, "to - 1");
}

}  // namespace

RandomRange random_range(DType dtype, int64_t from, std::optional<int64_t> to) {
  RandomRange range{};
  if (!to && from == std::numeric_limits<int64_t>::min()) {
    switch (dtype) {
      case DType::Int64:
      case DType::Float64:
      case DType::Float32:
      case DType::BFloat16:
        return RandomRange{0, 0, {}};
      case DType::UInt8:
      case DType::Int8:
      case DType::Int16:
      case DType::Int32:
        fail("random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16");
      default:
        not_implemented("random_full_64_bits_range_kernel_cpu", dtype);
    }
  }
  int64_t last;
  if (to) {
    MICA_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
    int64_t end = *to;
    if (is_floating(dtype)) {
      dispatch_floating(dtype, "random_update_from_to", [&]<class T>(T) {
        from = move_from_up<T>(from);
        end = move_to_down<T>(end);
        MICA_CHECK(from < end,
                   "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=", from,
                   " >= to=", end);
      });
    }
    MICA_CHECK(!is_complex(dtype), "check_random_bounds handles only integral, floating-point and boolean types");
    last = end - 1;
  } else {
    MICA_CHECK(!is_complex(dtype), "random_from_to_impl handles only integral, floating-point and boolean types");
    if (is_floating(dtype)) {
      dispatch_floating(dtype, "random_from_to_range_calc", [&]<class T>(T) {
        last = int64_t{1} << FloatRange<T>::kDigits;
        from = move_from_up<T>(from);
        MICA_CHECK(from < last,
                   "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but "
                   "got from=",
                   from, " > to_inc=", last);
      });
    } else if (dtype == DType::Bool) {
      last = 1;
    } else if (dtype == DType::UInt64) {
      last = -1;  // its largest value as int64, which the check below refuses, as torch's does
    } else {
      const int bits = static_cast<int>(8 * element_size(dtype)) - (info(dtype).is_signed ? 1 : 0);
      last = static_cast<int64_t>((1ull << bits) - 1);
    }
  }
  check_range(dtype, from, last, range.warning);
  range.base = from;
  range.count = static_cast<uint64_t>(last) - static_cast<uint64_t>(from) + 1;
  return range;
}

void fill_random(void* data, DType dtype, int64_t numel, const RandomRange& range, const Generator& generator) {
  if (numel == 0) return;
  switch (dtype) {
    case DType::UInt16:
      return fill_range(static_cast<uint16_t*>(data), numel, range, generator);
    case DType::UInt32:
      return fill_range(static_cast<uint32_t*>(data), numel, range, generator);
    case DType::UInt64:
      return fill_range(static_cast<uint64_t*>(data), numel, range, generator);
    default:
      dispatch_plain<true>(dtype, "random_from_to_kernel_cpu",
                           [&]<class T>(T) { fill_range(static_cast<T*>(data), numel, range, generator); });
  }
}

void fill_random(void* data, DType dtype, int64_t numel, const Generator& generator) {
  if (numel == 0) return;
  dispatch_plain<true>(dtype, "random_kernel_cpu", [&]<class T>(T) {
    auto* out = static_cast<T*>(data);
    if constexpr (std::is_same_v<T, bool>) {
      map_words<uint32_t>(out, numel, generator, [](uint32_t word) { return (word & 1) != 0; });
    } else if constexpr (std::is_integral_v<T>) {
      using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
      constexpr auto mask = static_cast<Word>(std::numeric_limits<T>::max());
      map_words<Word>(out, numel, generator, [](Word word) { return static_cast<T>(word & mask); });
    } else {
      using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
      constexpr Word count = (Word{1} << FloatRange<T>::kDigits) + 1;
      map_words<Word>(out, numel, generator,
                      [](Word word) { return from_int64<T>(static_cast<int64_t>(word % count)); });
    }
  });
}

void fill_randperm(void* data, DType dtype, int64_t n, const Generator& generator) {
  MICA_CHECK(n >= 0, "n must be non-negative, got", n);
  dispatch_plain<false>(dtype, "randperm", [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>) {
      MICA_CHECK(n == 0 || n - 1 <= static_cast<int64_t>(std::numeric_limits<T>::max()),
                 "value cannot be converted to type ", name(dtype), "_t without overflow");
    } else if constexpr (!std::is_same_v<T, BFloat16>) {
      constexpr int digits = FloatRange<T>::kDigits;
      MICA_CHECK(n <= (int64_t{1} << digits) + 1, "n cannot be greater than ",
                 digits == 11 ? std::string("2049") : cat("2^", digits, "+1"), " for ", info(dtype).legacy, " type.");
    }
    auto* out = static_cast<T*>(data);
    CpuGenerator& source = cpu_generator(generator);
    std::lock_guard lock(source.mutex);
    if (n < static_cast<int64_t>(std::numeric_limits<uint32_t>::max() / 20)) {
      for (int64_t i = 0; i < n; ++i) out[i] = from_int64<T>(i);
      draw_blocks<uint32_t>(source.engine, n - 1, [&](const uint32_t* words, int64_t first, int64_t count) {
        for (int64_t i = first; i < first + count; ++i) {
          const uint32_t offset = words[i - first] % static_cast<uint32_t>(n - i);
          std::swap(out[i], out[i + offset]);
        }
      });
    } else {
      // Shuffled from 64-bit words: there are too many elements for a 32-bit remainder to be even.
      draw_blocks<uint64_t>(source.engine, n, [&](const uint64_t* words, int64_t first, int64_t count) {
        for (int64_t i = first; i < first + count; ++i) {
          const uint64_t other = words[i - first] % static_cast<uint64_t>(i + 1);
          out[i] = from_int64<T>(i);
          out[i] = out[other];
          out[other] = from_int64<T>(i);
        }
      });
    }
  });
}

}  // namespace mica::cpu
