// Checks that throw: TORCH_CHECK(condition, parts of the message...). The parts are whatever can be printed.
#pragma once

#include <sstream>
#include <string>

#include "mica/error.h"
#include "mica/print.h"
#include "mica/warning.h"

namespace torch::detail {

template <class Part>
void append(std::string& text, const Part& part) {
  if constexpr (mica::Printable<Part>) {
    mica::append_to(text, part);
  } else {
    std::ostringstream stream;
    stream << part;
    text += stream.str();
  }
}

template <class... Parts>
std::string message(const char* unsaid, const Parts&... parts) {
  if constexpr (sizeof...(Parts) == 0) return unsaid;
  std::string text;
  (append(text, parts), ...);
  return text;
}

}  // namespace torch::detail

#define TORCH_CHECK_WITH_KIND(kind, condition, ...)                                                                   \
  do {                                                                                                                \
    if (!(condition)) [[unlikely]]                                                                                    \
      ::mica::fail(                                                                                                   \
          ::mica::ErrorKind::kind,                                                                                    \
          ::torch::detail::message("Expected " #condition " to be true, but got false." __VA_OPT__(, ) __VA_ARGS__)); \
  } while (0)

#define TORCH_CHECK(condition, ...) TORCH_CHECK_WITH_KIND(Runtime, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) TORCH_CHECK_WITH_KIND(Index, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK_WITH_KIND(Value, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK_WITH_KIND(Type, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  TORCH_CHECK_WITH_KIND(NotImplemented, condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ASSERT(condition) TORCH_CHECK(condition)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#define AT_ERROR(...) ::mica::fail(::torch::detail::message("" __VA_OPT__(, ) __VA_ARGS__))
#define TORCH_WARN(...) ::mica::warn(::torch::detail::message("" __VA_OPT__(, ) __VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                                    \
  do {                                                                          \
    static std::atomic<bool> warned{false};                                     \
    if (!warned.exchange(true) || ::mica::warn_always) TORCH_WARN(__VA_ARGS__); \
  } while (0)
