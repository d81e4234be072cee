#include "mica/build_info.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

namespace mica {

namespace {

std::string number(int n) { return std::to_string(n); }

std::string compiler() {
#if defined(__clang__)
  return "Clang " + number(__clang_major__) + "." + number(__clang_minor__) + "." + number(__clang_patchlevel__);
#elif defined(__GNUC__)
  return "GCC " + number(__GNUC__) + "." + number(__GNUC_MINOR__) + "." + number(__GNUC_PATCHLEVEL__);
#else
  return "another compiler";
#endif
}

}  // namespace

// A target is a bit, and better ones are lower. Dispatch takes the best that is compiled and that the machine has.
BuildInfo build_info() {
  BuildInfo info;
  info.compiler = compiler();
  info.highway = number(HWY_MAJOR) + "." + number(HWY_MINOR) + "." + number(HWY_PATCH);
  const int64_t here = hwy::SupportedTargets();
  for (int64_t left = HWY_TARGETS; left; left &= left - 1) {
    const int64_t target = left & -left;
    const char* name = hwy::TargetName(target);
    if (!info.compiled_targets.empty()) info.compiled_targets += ", ";
    info.compiled_targets += name;
    if (info.cpu_target.empty() && (here & target)) info.cpu_target = name;
  }
  return info;
}

}  // namespace mica
