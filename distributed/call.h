// The calls that a backend carries out: one struct for every collective and message, with bytes, a dtype and a
// reduction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mica/dtype.h"

namespace mica::distributed {

enum class Kind : uint8_t {
  AllReduce,
  Reduce,
  Broadcast,
  AllGather,
  Gather,
  Scatter,
  ReduceScatter,
  AllToAll,
  Barrier,
  Send,
  Recv
};
enum class Reduction : uint8_t { Sum, Avg, Product, Min, Max, BAnd, BOr, BXor, PremulSum };

const char* name_of(Kind kind);
const char* name_of(Reduction reduction);
const char* name_of_dtype(DType dtype);

struct Bytes {
  std::byte* data = nullptr;
  size_t size = 0;
};

// Inputs and outputs by kind, for a group of n ranks:
//   AllReduce, Broadcast: one of each, which may be the same memory     Reduce: one of each, the output on the root
//   AllGather: one input, n outputs     Gather: the outputs on the root     Scatter: n inputs on the root, one output
//   ReduceScatter: n inputs, one output     AllToAll: n inputs, n outputs     Send: one input     Recv: one output
struct Call {
  static constexpr int kAnySource = -1;

  Kind kind = Kind::Barrier;
  DType dtype = DType::UInt8;
  Reduction reduction = Reduction::Sum;
  double factor = 1;  // the factor of PremulSum
  int root = 0;       // the root of a collective, the peer of a message
  int64_t tag = 0;
  double timeout = 1800;  // seconds
  std::vector<Bytes> inputs, outputs;
  std::vector<int64_t> shape;       // the shape of the tensor, for messages to people
  std::string place;                // file:line of the program that made the call
  std::function<void()> interrupt;  // called a few times a second while the call waits; it may throw

  size_t element_size() const;
  bool reduces() const { return kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter; }
};

// A call as errors name it: what it is, its number among its group's collectives, dtype and shape, group and place.
std::string describe(const Call& call, uint64_t number, const std::string& group);

// Errors by the Python class that they become.
struct BackendError : std::runtime_error {
  using runtime_error::runtime_error;
};
struct StoreError : std::runtime_error {
  using runtime_error::runtime_error;
};
struct NetworkError : std::runtime_error {
  using runtime_error::runtime_error;
};
struct InvalidCall : std::runtime_error {
  using runtime_error::runtime_error;
};
// Thrown by Call::interrupt after it has left its own error behind.
struct Interrupted : std::runtime_error {
  Interrupted() : runtime_error("interrupted") {}
};

// A message that is on its way.
class Message {
 public:
  virtual ~Message() = default;
  // Returns false if it was not done within `seconds`. Throws the error with which it failed.
  virtual bool wait(double seconds, const std::function<void()>& interrupt) = 0;
  virtual bool done() = 0;
  virtual int sender() const = 0;  // for a message that was received from any source
};

// The engine of one group of processes. To add one, implement these.
class Backend {
 public:
  virtual ~Backend() = default;
  // Runs a collective to its end. Calls come one after the other, in the same order on every rank.
  virtual void run(Call& call) = 0;
  // Starts a message. Its memory stays valid until the message is done or the backend is gone.
  virtual std::shared_ptr<Message> post(Call call) = 0;
  // Makes everything that waits now, here and on other ranks, and all later calls fail with this text.
  virtual void abort(const std::string& why) = 0;
  // Called when this rank makes no more calls.
  virtual void leave() = 0;

  // The seconds that this rank has waited for each other rank, if the backend counts them.
  virtual std::vector<double> waited() const { return {}; }

  // How many threads of the program wait for work of the group's own thread: while it waits, they do too.
  std::atomic<int> program_waits{0};
};

// Throws InvalidCall where the reduction is not defined for the dtype.
void check_reduction(const Call& call);

}  // namespace mica::distributed
