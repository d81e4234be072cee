// Warnings: shown on standard error in a C++ program, as UserWarning in Python.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "mica/error.h"

namespace mica {

// The handler may throw: the operation that warned then fails.
using WarningHandler = void (*)(std::string_view message);

WarningHandler set_warning_handler(WarningHandler handler);  // null restores the default; returns the one before
void warn(std::string_view message);

// Whether warnings that are shown once otherwise are shown every time (torch.set_warn_always).
extern std::atomic<bool> warn_always;

// Warns the first time that the program comes to this place.
#define MICA_WARN_ONCE(...)                                                                    \
  do {                                                                                         \
    static std::atomic<bool> warned{false};                                                    \
    if (!warned.exchange(true) || ::mica::warn_always) ::mica::warn(::mica::cat(__VA_ARGS__)); \
  } while (0)

}  // namespace mica
