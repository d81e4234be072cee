#include "mica/warning.h"

#include <cstdio>
#include <exception>

#include "mica/core/handled_error.h"

namespace mica {

static void print_warning(std::string_view message) {
  std::fprintf(stderr, "Warning: %.*s\n", static_cast<int>(message.size()), message.data());
}

static std::atomic<WarningHandler> current_handler{print_warning};

std::atomic<bool> warn_always{false};

WarningHandler set_warning_handler(WarningHandler handler) {
  return current_handler.exchange(handler ? handler : print_warning);
}

void warn(std::string_view message) { current_handler.load()(message); }

bool handles_error() { return std::current_exception() != nullptr; }

}  // namespace mica
