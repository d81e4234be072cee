// Registration of kernels that are compiled once per instruction set.
#pragma once

#include <hwy/targets.h>

#include "mica/backend.h"

// MICA_REGISTER_SIMD(slot, function): after HWY_EXPORT(function), fills the CPU's slot with the version for this machine.
#define MICA_REGISTER_SIMD(slot, function)                                                              \
  [[maybe_unused]] static const bool registered_##slot = [] {                                           \
    auto& chosen = ::hwy::GetChosenTarget();                                                            \
    chosen.Update(::hwy::SupportedTargets());                                                           \
    ::mica::cpu_kernels.slot = &HWY_DYNAMIC_DISPATCH(function);                                         \
    return true;                                                                                        \
  }()
