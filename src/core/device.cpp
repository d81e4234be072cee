#include "mica/device.h"

#include <atomic>
#include <mutex>

#include "core/default_device.h"
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

// A device as a number: the type in the low byte, the index in the next one.
int32_t packed(Device d) { return static_cast<uint8_t>(d.type()) | (static_cast<uint8_t>(d.index()) << 8); }
Device unpacked(int32_t number) { return {static_cast<DeviceType>(number & 0xff), static_cast<int8_t>(number >> 8)}; }
constexpr int32_t kNotChosen = -1;
[[gnu::tls_model("initial-exec")]] constinit thread_local int32_t chosen = kNotChosen;
std::atomic<int32_t> of_tensor_type{packed(kCPU)};

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

Device default_device() { return chosen == kNotChosen ? tensor_type_device() : unpacked(chosen); }
void set_default_device(Device d) { chosen = packed(d); }

std::optional<Device> chosen_device() {
  return chosen == kNotChosen ? std::nullopt : std::optional<Device>(unpacked(chosen));
}
void choose_device(std::optional<Device> device) { chosen = device ? packed(*device) : kNotChosen; }

Device tensor_type_device() { return unpacked(of_tensor_type.load(std::memory_order_relaxed)); }
void set_tensor_type_device(Device device) { of_tensor_type.store(packed(device), std::memory_order_relaxed); }

}  // namespace mica
