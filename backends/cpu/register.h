// Kernel files fill the CPU's table by the slot's name; the function's type is checked when the library is loaded. So a
// kernel file depends on no generated header.
#pragma once

#include <string_view>
#include <typeinfo>

namespace mica::cpu {

struct KernelSlot {
  std::string_view name;
  const std::type_info* type;  // the type of the slot's function pointer
  void* address;
};
const KernelSlot* find_kernel_slot(std::string_view name);  // generated

// Stops the process where the table has no such slot or the signatures differ: the library was linked wrongly.
bool register_kernel(const char* slot, const std::type_info& type, void (*function)());

template <class Function>
bool register_kernel(const char* slot, Function* function) {
  return register_kernel(slot, typeid(Function*), reinterpret_cast<void (*)()>(function));
}

}  // namespace mica::cpu

#define MICA_REGISTER_CPU(slot, function) \
  [[maybe_unused]] static const bool registered_##slot = ::mica::cpu::register_kernel(#slot, &function)
