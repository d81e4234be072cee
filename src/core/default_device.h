#pragma once

#include <optional>

#include "mica/device.h"

// Where new tensors lie when their maker does not say. A thread may choose a device, by set_default_device or a
// device's context. A thread that has chosen none has the device of the default tensor type, which all threads share.

namespace mica {

std::optional<Device> chosen_device();
void choose_device(std::optional<Device> device);

// The constructors that know nothing of a chosen device, such as torch.Tensor(2, 3) and torch.normal, use this one.
Device tensor_type_device();
void set_tensor_type_device(Device device);

}  // namespace mica
