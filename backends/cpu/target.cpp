#include "backends/cpu/target.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace mica::cpu {

namespace {

constexpr bool kOnlyAvx512 = HWY_STATIC_TARGET == HWY_AVX3;  // cmake/Flags.cmake

bool lower_one_wanted() {
  const char* value = std::getenv("ATEN_CPU_CAPABILITY");
  if (!value) return false;
  const std::string_view wanted = value;
  if (wanted == "avx2" || wanted == "default") {
    if (!kOnlyAvx512) return true;
    std::fprintf(stderr,
                 "mica: ATEN_CPU_CAPABILITY=%s is ignored; this library was built for AVX-512 alone, with "
                 "MICA_VECTOR_SETS=native\n",
                 value);
  } else if (wanted != "avx512") {
    std::fprintf(stderr, "mica: ATEN_CPU_CAPABILITY=%s is ignored; it may be avx512, avx2 or default\n", value);
  }
  return false;
}

}  // namespace

bool may_use_avx512() {
  static const bool may = HWY_ARCH_X86 && !lower_one_wanted();
  return may;
}

}  // namespace mica::cpu

// The part of libhwy that the kernels' dispatch needs. The library itself measures the processor's clock when it is
// loaded, and asks for the processor's instructions once for each kernel, which took 5 ms of an import in a virtual
// machine. With these functions here the linker leaves it out.
namespace hwy {

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

// A target is a bit. Kernels are compiled for the instructions that every machine has which can load the library, and
// on x86-64 for AVX-512 too, unless the build is for one machine.
int64_t SupportedTargets() {
  static const int64_t targets = [] {
    int64_t found = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
    __builtin_cpu_init();
    if (mica::cpu::may_use_avx512() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd"))
      found |= HWY_AVX3;
#endif
    return found;
  }();
  return targets;
}

}  // namespace hwy
