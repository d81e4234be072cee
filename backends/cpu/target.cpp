#include "backends/cpu/target.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace mica::cpu {

namespace {

bool lower_one_wanted() {
  const char* value = std::getenv("ATEN_CPU_CAPABILITY");
  if (!value) return false;
  const std::string_view wanted = value;
  if (wanted == "avx2" || wanted == "default") return true;
  if (wanted != "avx512") {
    std::fprintf(stderr, "mica: ATEN_CPU_CAPABILITY=%s is ignored; it may be avx512, avx2 or default\n", value);
  }
  return false;
}

#if HWY_ARCH_X86
// Runs as the library is loaded, before the kernels register themselves (101 is the first priority that programs have).
// A target is a bit, and better ones are lower.
[[gnu::constructor(101)]] void limit_targets() {
  if (!may_use_avx512()) hwy::DisableTargets(HWY_AVX2 - 1);
}
#endif

}  // namespace

bool may_use_avx512() {
  static const bool may = HWY_ARCH_X86 && !lower_one_wanted();
  return may;
}

}  // namespace mica::cpu
