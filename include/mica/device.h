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

class Device {
 public:
  constexpr Device() = default;
  constexpr Device(DeviceType type, int index = -1) : type_(type), index_(static_cast<int8_t>(index)) {}
  explicit Device(std::string_view text);  // "cpu", "cuda:1", "meta"
  constexpr DeviceType type() const { return type_; }
  constexpr int8_t index() const { return index_; }  // -1: the current one of that type
  constexpr bool has_index() const { return index_ >= 0; }
  constexpr bool is_cpu() const { return type_ == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type_ == DeviceType::CUDA; }
  constexpr bool is_meta() const { return type_ == DeviceType::Meta; }
  std::string str() const;  // as torch prints it: "cuda:0", "cpu"
  friend bool operator==(Device, Device) = default;

 private:
  DeviceType type_ = DeviceType::CPU;
  int8_t index_ = -1;
};

inline constexpr Device kCPU{DeviceType::CPU};
inline constexpr Device kCUDA{DeviceType::CUDA};
inline constexpr Device kMeta{DeviceType::Meta};

std::string_view device_type_name(DeviceType type);
DeviceType register_device_type(std::string_view name);  // idempotent for one name

Device default_device();
void set_default_device(Device device);

inline void append_to(std::string& s, Device d) { s += d.str(); }

}  // namespace mica
