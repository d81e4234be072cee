// What the library was built with and what it chose on this machine, for people who look for the cause of something.
#pragma once

#include <string>

namespace mica {

struct BuildInfo {
  std::string compiler;          // "GCC 12.2.0"
  std::string highway;           // the version of the library of vectors: "1.0.3"
  std::string cpu_target;        // the instruction set that kernels use on this machine: "NEON", "AVX2", "AVX3"
  std::string compiled_targets;  // all instruction sets that kernels were compiled for, the best first
};

BuildInfo build_info();

}  // namespace mica
