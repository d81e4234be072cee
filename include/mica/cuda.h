// GPUs from C++: streams, events, graphs, pinned memory. Programs that only compute on a GPU need none of this:
// Device("cuda") is enough. Work is queued on the calling thread's current stream of its device.
#pragma once

#include <algorithm>
#include <utility>

#include "mica/backend.h"
#include "mica/backend/cuda_extension.h"
#include "mica/error.h"
#include "mica/ops.h"
#include "mica/values.h"

namespace mica::cuda {

inline int device_count() { return mica::device_count(DeviceType::CUDA); }
inline bool is_available() { return device_count() > 0; }

inline int current_device() { return backend(DeviceType::CUDA).current_device(); }
inline void set_device(int index) { backend(DeviceType::CUDA).set_device(index); }
// The index, or that of the thread's current device where it is negative.
inline int index_or_current(int index) { return index >= 0 ? index : current_device(); }
inline Device device(int index = -1) { return with_index(Device(DeviceType::CUDA, index)); }
// Waits for all work that was queued on a device.
inline void synchronize(int index = -1) { backend(DeviceType::CUDA).synchronize(index_or_current(index)); }

inline MemoryStats memory_stats(int index = -1) {
  return MICA_HOOK(backend(DeviceType::CUDA), memory_stats)(index_or_current(index));
}
inline void empty_cache() { MICA_HOOK(backend(DeviceType::CUDA), empty_cache)(); }

// A copy in pinned host memory; copy_(..., non_blocking) from it and to it returns at once.
inline Tensor pin_memory(const Tensor& t) {
  const Backend& b = backend(DeviceType::CUDA);
  const Tensor dense = t.detach().contiguous();
  const auto bytes = static_cast<size_t>(std::max<int64_t>(dense.nbytes(), 1));
  void* memory = MICA_HOOK(b, allocate_pinned)(bytes);
  auto* release = MICA_HOOK(b, free_pinned);
  const Tensor pinned = from_blob(
      memory, dense.sizes(), [=](void* data) { release(data, bytes); }, TensorOptions(dense.dtype()));
  pinned.copy_(dense);
  return pinned;
}

class Event;

// Work that runs in the order in which it was queued. Streams are handles: copies name the same one.
class Stream {
 public:
  // A new stream. Where the device has to choose, streams with a lower priority number run first.
  explicit Stream(int priority = 0, int index = -1)
      : stream_(MICA_HOOK(backend(DeviceType::CUDA), new_stream)(index_or_current(index), priority)),
        index_(index_or_current(index)) {}
  static Stream current(int index = -1) {
    return Stream(MICA_HOOK(backend(DeviceType::CUDA), current_stream)(index_or_current(index)),
                  index_or_current(index));
  }
  static Stream default_of(int index = -1) {
    return Stream(mica::Stream{nullptr, device(index)}, index_or_current(index));
  }

  void* handle() const { return stream_.handle; }  // a cudaStream_t
  mica::Stream get() const { return stream_; }
  int device_index() const { return index_; }
  bool is_done() const { return MICA_HOOK(backend(DeviceType::CUDA), stream_done)(stream_); }
  void synchronize() const { MICA_HOOK(backend(DeviceType::CUDA), synchronize_stream)(stream_); }
  // Work that is queued here later starts after the event, or after the work that the other stream has now.
  void wait(const Event& event) const;
  void wait(const Stream& other) const;
  // Keeps the memory of a tensor, which another stream allocated, from being given to others before this stream is done
  // with it.
  void uses(const Tensor& t) const {
    if (t.numel() > 0) MICA_HOOK(backend(DeviceType::CUDA), use_on_stream)(t.storage()->data(), stream_);
  }
  friend bool operator==(const Stream&, const Stream&) = default;

 private:
  friend class StreamGuard;
  Stream(mica::Stream stream, int index) : stream_(stream), index_(index) {}
  mica::Stream stream_;
  int index_;
};

// Makes a stream the thread's current one for a scope.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream) : before_(Stream::current(stream.device_index())) {
    MICA_HOOK(backend(DeviceType::CUDA), set_stream)(stream.get());
  }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard() { backend(DeviceType::CUDA).set_stream(before_.get()); }

 private:
  Stream before_;
};

// A point in a stream's work.
class Event {
 public:
  explicit Event(bool timing = false, int index = -1)
      : event_(MICA_HOOK(backend(DeviceType::CUDA), new_event)(index_or_current(index), timing)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { backend(DeviceType::CUDA).free_event(event_); }

  void record(const Stream& stream = Stream::current()) {
    MICA_HOOK(backend(DeviceType::CUDA), record_event)(event_, stream.get());
  }
  bool is_done() const { return MICA_HOOK(backend(DeviceType::CUDA), event_done)(event_); }
  void synchronize() const { MICA_HOOK(backend(DeviceType::CUDA), synchronize_event)(event_); }
  double milliseconds_to(const Event& later) const {
    return MICA_HOOK(backend(DeviceType::CUDA), elapsed_ms)(event_, later.event_);
  }
  mica::Event get() const { return event_; }

 private:
  mica::Event event_;
};

inline void Stream::wait(const Event& event) const {
  MICA_HOOK(backend(DeviceType::CUDA), wait_event)(stream_, event.get());
}
inline void Stream::wait(const Stream& other) const {
  Event reached(false, other.index_);
  reached.record(other);
  wait(reached);
}

// Work that is recorded once and queued again as a whole. The graph keeps the memory that was allocated while it was
// recorded.
class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { reset(); }

  // Records the work that f queues, instead of running it, on a stream of its own. Run f once or twice before:
  // libraries must not start up during a recording.
  template <class F>
  void capture(const F& f) {
    MICA_CHECK(!handle_, "This graph already owns a captured graph. Call reset() first.");
    synchronize();
    const Stream stream;
    const StreamGuard guard(stream);
    handle_ = api().begin(current_device(), "thread_local", 0);
    try {
      f();
    } catch (...) {
      try {
        api().end(handle_);  // leaves the stream usable; the error of f is the one to tell
      } catch (const Error&) {
      }
      reset();
      throw;
    }
    api().end(handle_);
  }
  void replay() const {
    MICA_CHECK(handle_, "Called Graph::replay without a preceding successful capture.");
    api().replay(handle_);
  }
  void reset() {
    if (handle_) api().free(std::exchange(handle_, nullptr));
  }

 private:
  static const GraphApi& api() {
    auto* found = static_cast<const GraphApi*>(backend(DeviceType::CUDA).extension("graphs"));
    MICA_CHECK(found, "the CUDA backend has no graphs");
    return *found;
  }
  void* handle_ = nullptr;
};

}  // namespace mica::cuda
