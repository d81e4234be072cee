#include "mica/device.h"

#include <atomic>
#include <mutex>

#include "core/device_names.h"
#include "mica/error.h"
#include "mica/core/fork.h"

namespace mica {

namespace {

struct Registry {
  std::mutex mutex;
  HeldOverFork held{mutex, LockOrder::Registry};
  std::string names[kMaxDeviceTypes] = {"cpu", "cuda", "meta"};
  std::atomic<int> count{3};
};
Registry& registry() {
  static Registry r;
  return r;
}
std::atomic<uint16_t> current_default{0xff00};  // type in the low byte, index in the high one: cpu

}  // namespace

std::string_view device_type_name(DeviceType type) {
  if (is_only_a_name(type)) return kNamedDevices[static_cast<int>(type) - kMaxDeviceTypes];
  return registry().names[static_cast<int>(type)];
}

DeviceType register_device_type(std::string_view name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const int n = r.count.load();
  for (int i = 0; i < n; ++i)
    if (r.names[i] == name) return static_cast<DeviceType>(i);
  MICA_CHECK(n < kMaxDeviceTypes, "no room for another device type: ", name);
  r.names[n] = name;
  r.count.store(n + 1);
  return static_cast<DeviceType>(n);
}

Device::Device(std::string_view text) {
  std::string_view kind = text;
  int parsed = -1;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    kind = text.substr(0, colon);
    const std::string_view digits = text.substr(colon + 1);
    bool ok = !digits.empty() && digits.size() <= 3 && (digits.size() == 1 || digits[0] != '0');
    parsed = 0;
    for (char c : digits) {
      ok = ok && c >= '0' && c <= '9';
      parsed = ok ? parsed * 10 + (c - '0') : 0;
    }
    MICA_CHECK(ok && parsed < 128, "Invalid device string: '", text, "'");
  }
  Registry& r = registry();
  const int n = r.count.load();
  for (int i = 0; i < n; ++i) {
    if (r.names[i] == kind) {
      type_ = static_cast<DeviceType>(i);
      index_ = static_cast<int8_t>(parsed);
      return;
    }
  }
  for (int i = 0; i < kNumNamedDevices; ++i) {
    if (kNamedDevices[i] == kind) {
      type_ = static_cast<DeviceType>(kMaxDeviceTypes + i);
      index_ = static_cast<int8_t>(parsed);
      return;
    }
  }
  for (char c : kind)
    MICA_CHECK(c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "Invalid device string: '", text, "'");
  std::string known;
  for (int i = 0; i < n; ++i) known += (i ? ", " : "") + r.names[i];
  for (std::string_view name : kNamedDevices) known += cat(", ", name);
  fail(cat("Expected one of ", known, " device type at start of device string: ", kind));
}

std::string Device::str() const {
  std::string s(device_type_name(type_));
  if (has_index()) s += ":" + std::to_string(index_);
  return s;
}

Device default_device() {
  const uint16_t packed = current_default.load(std::memory_order_relaxed);
  return {static_cast<DeviceType>(packed & 0xff), static_cast<int8_t>(packed >> 8)};
}
void set_default_device(Device d) {
  current_default.store(static_cast<uint16_t>(static_cast<uint8_t>(d.type()) | (static_cast<uint8_t>(d.index()) << 8)));
}

}  // namespace mica
