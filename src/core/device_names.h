// The names of devices that torch knows. Programs name them to ask about them; without a backend no tensor lives there.
#pragma once

#include <string_view>

#include "mica/device.h"

namespace mica {

// Types from kMaxDeviceTypes on are names only. A backend that registers one of these names gets a type below it.
inline constexpr std::string_view kNamedDevices[] = {"ipu",    "xpu", "mkldnn", "opengl", "opencl",       "ideep",
                                                     "hip",    "ve",  "fpga",   "maia",   "xla",          "lazy",
                                                     "vulkan", "mps", "hpu",    "mtia",   "privateuseone"};
inline constexpr int kNumNamedDevices = static_cast<int>(sizeof(kNamedDevices) / sizeof(kNamedDevices[0]));
inline constexpr int kNumDeviceTypes = kMaxDeviceTypes + kNumNamedDevices;

inline bool is_only_a_name(DeviceType type) { return static_cast<int>(type) >= kMaxDeviceTypes; }

}  // namespace mica
