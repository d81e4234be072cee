// Where a tensor lives. CPU and meta are built in; every other device type belongs to a backend opened at run time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mica {

enum class DeviceType : uint8_t {
  CPU,
  CUDA,
  Meta,
  FirstRegistered
};  // further values are handed out by register_device_type
inline constexpr int kMaxDeviceTypes = 8;

struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = -1;  // -1: the current one of that type

  constexpr Device() = default;
  constexpr Device(DeviceType t, int i = -1) : type(t), index(static_cast<int8_t>(i)) {}
  explicit Device(std::string_view text);  // "cpu", "cuda:1", "meta"
  bool is_cpu() const { return type == DeviceType::CPU; }
  bool is_cuda() const { return type == DeviceType::CUDA; }
  bool is_meta() const { return type == DeviceType::Meta; }
  std::string str() const;  // as torch prints it: "cuda:0", "cpu"
  friend bool operator==(Device, Device) = default;
};

inline constexpr Device kCPU{DeviceType::CPU};
inline constexpr Device kMeta{DeviceType::Meta};

std::string_view device_type_name(DeviceType type);
DeviceType register_device_type(std::string_view name);  // idempotent for one name

Device default_device();
void set_default_device(Device device);

inline void append_to(std::string& s, Device d) { s += d.str(); }

}  // namespace mica
