// A record of what a thread ran: operations, backward nodes and named ranges, with their time, memory and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "mica/core/grad_mode.h"
#include "mica/tensor.h"

namespace mica::profiler {

struct Options {
  bool shapes = false;  // of inputs and results
  bool memory = false;  // what each event allocated, less what it freed
  bool stacks = false;  // the Python stack of each call
};

enum class Kind : uint8_t { Operation, Node, Range };

struct Event {
  std::string name;
  Kind kind = Kind::Operation;
  int32_t parent = -1;  // its index among the events of the recording
  uint64_t thread = 0;
  int64_t start_ns = 0, end_ns = 0;  // of the monotonic clock
  int64_t bytes = 0;
  std::vector<DimVector> shapes;  // of the tensors among the inputs
  std::vector<DType> dtypes;
  std::vector<std::optional<DimVector>> results;  // shapes; none for a result that was not asked for
  // The number of the node that an operation made or that ran: it links a backward event to its forward.
  int64_t sequence = -1;
  std::string stack;
};

// Records what the calling thread runs from now on; throws if it is being recorded already.
void start(const Options& options);
// Ends the recording and hands it over, in the order in which events began. Empty if nothing was being recorded.
std::vector<Event> stop();
bool recording();

void begin(std::string name, Kind kind, int64_t sequence = -1);
void end();

// An event for a scope; nothing while nobody records.
class Range {
 public:
  explicit Range(const char* name, Kind kind = Kind::Range, uint64_t sequence = UINT64_MAX)
      : open_(thread_modes & mode_bit::kProfile) {
    if (open_) [[unlikely]]
      begin(name, kind, static_cast<int64_t>(sequence));
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() {
    if (open_) [[unlikely]]
      end();
  }

 private:
  bool open_;
};

// The Python stack as text; set by the Python extension.
extern std::string (*describe_stack)();

// What the table says about the copies that an operation makes (`copies` of its entry). Asked: a program that calls it
// asks for them. Reshape: they are made where strides allow no view of another shape. Unsaid: nothing is known.
enum class Copies : uint8_t { Unsaid, Asked, Reshape };

// Stands at the top of an operation's entry while somebody records: opens an event, lets the entry call itself once
// more for the work, and closes it.
class Scope {
 public:
  explicit Scope(const char* operation, Copies copies = Copies::Unsaid) : operation_(operation), copies_(copies) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    if (open_) end();
  }

  // Returns whether the event was opened, which it is not when the entry calls itself.
  template <class... Ts>
  [[gnu::noinline, gnu::cold]] bool entered(const Ts&... inputs) {
    if (!enter()) return false;
    (note(inputs), ...);
    return true;
  }
  template <class R>
  R finish(R&& result) {
    using Plain = std::remove_cvref_t<R>;
    if constexpr (std::is_same_v<Plain, Tensor>)
      note_result(result);
    else if constexpr (is_tensors<Plain>::value)
      std::apply([](const auto&... tensors) { (note_result(tensors), ...); }, result);
    return static_cast<R&&>(result);
  }

 private:
  template <class T>
  struct is_tensors : std::false_type {};
  template <class... Ts>
  struct is_tensors<std::tuple<Ts...>> : std::bool_constant<(std::is_same_v<Ts, Tensor> && ...)> {};

  bool enter();
  static void note(const Tensor& input);
  static void note(TensorList inputs);
  static void note_result(const Tensor& result);

  const char* operation_;
  Copies copies_;
  bool open_ = false;
};

}  // namespace mica::profiler
