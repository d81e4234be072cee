// Registration of kernels that are compiled once per instruction set.
#pragma once

#include <hwy/highway.h>

#include "backends/cpu/register.h"

// MICA_REGISTER_SIMD(slot, function): after HWY_EXPORT(function), fills the CPU's slot with the version for this
// machine.
#define MICA_REGISTER_SIMD(slot, function)                                       \
  [[maybe_unused]] static const bool registered_##slot = [] {                    \
    ::hwy::GetChosenTarget().Update(::hwy::SupportedTargets());                  \
    return ::mica::cpu::register_kernel(#slot, &HWY_DYNAMIC_DISPATCH(function)); \
  }()
