// What kernels read first where they are compiled for one target: these headers are precompiled (cmake/Flags.cmake).
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <hwy/detect_targets.h>

// With one target foreach_target.h compiles nothing again, so it may be read before a kernel names itself in
// HWY_TARGET_INCLUDE. With several, highway.h differs from target to target, and each kernel reads it for itself.
#if HWY_TARGETS == HWY_STATIC_TARGET
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#endif
