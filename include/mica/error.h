// Errors carry a kind (which becomes the Python exception type) and a message that begins with torch's words where
// programs know them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "mica/dtype.h"

namespace mica {

enum class ErrorKind : uint8_t { Runtime, Index, Type, Value, NotImplemented, OutOfMemory, Attribute, Buffer };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message) : std::runtime_error(std::move(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

[[noreturn]] void fail(ErrorKind kind, std::string message);
[[noreturn]] inline void fail(std::string message) { fail(ErrorKind::Runtime, std::move(message)); }

// cat(a, b, ...): the message builder. Takes strings, numbers, dtypes and anything with an append_to(std::string&, T)
// overload.
inline void append_to(std::string& s, std::string_view v) { s += v; }
inline void append_to(std::string& s, const char* v) { s += v; }
inline void append_to(std::string& s, const std::string& v) { s += v; }
inline void append_to(std::string& s, char v) { s += v; }
inline void append_to(std::string& s, bool v) { s += v ? "True" : "False"; }
inline void append_to(std::string& s, DType v) { s += name(v); }
void append_to(std::string& s, double v);  // shortest form that reads back, as Python prints it
template <class T>
requires(std::is_integral_v<T>) inline void append_to(std::string& s, T v) { s += std::to_string(v); }

template <class T>
concept Printable = requires(std::string& s, const T& v) {
  append_to(s, v);
};

// Not to be confused with the operation cat(tensors, dim): a list of tensors is not printable.
template <Printable... Parts>
std::string cat(const Parts&... parts) {
  std::string s;
  (append_to(s, parts), ...);
  return s;
}

#define MICA_CHECK(condition, ...)            \
  do {                                        \
    if (!(condition)) [[unlikely]]            \
      ::mica::fail(::mica::cat(__VA_ARGS__)); \
  } while (0)
#define MICA_CHECK_KIND(condition, kind, ...)                          \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::mica::fail(::mica::ErrorKind::kind, ::mica::cat(__VA_ARGS__)); \
  } while (0)

}  // namespace mica
