// Descriptions of cuDNN's graph interface: objects with attributes by number, and the plans that are made of a graph.
#pragma once

#include <utility>
#include <vector>

#include "backends/cuda/cudnn/cudnn.h"

namespace mica::cuda::cudnn {

// A description under construction, destroyed unless it is let go.
class Description {
 public:
  explicit Description(int kind) { check(api().create_descriptor(kind, &handle_), "cudnnBackendCreateDescriptor"); }
  Description(Description&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Description& operator=(Description&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Description() {
    if (handle_) api().destroy_descriptor(handle_);
  }
  Description& set(int attribute, int type, int64_t count, const void* values) {
    check(api().set(handle_, attribute, type, count, values), "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Description& set(int attribute, int type, const T& value) {
    return set(attribute, type, 1, &value);
  }
  Description& set(int attribute, const Description& other) {
    return set(attribute, kTypeDescriptor, 1, &other.handle_);
  }
  Description& finish() {
    check(api().finalize(handle_), "cudnnBackendFinalize");
    return *this;
  }
  bool try_finish() { return api().finalize(handle_) == 0; }
  Descriptor get() const { return handle_; }
  Descriptor release() { return std::exchange(handle_, nullptr); }

 private:
  Descriptor handle_ = nullptr;
};

// A tensor of a graph. A virtual one is never in memory; one by value is read from the host when a plan runs.
struct TensorFacts {
  int64_t id;
  int type, dims;
  const int64_t *sizes, *strides;
  int64_t alignment = 16;
  bool is_virtual = false, by_value = false;
};
Description tensor(const TensorFacts& facts);

Description operation_graph(Handle handle, const std::vector<Description>& operations);

// The engines that a heuristic names, the most promising first.
std::vector<Description> engines(const Description& graph, int mode);

struct Plan {
  Descriptor plan = nullptr;
  size_t workspace = 0;
};
// The plan of an engine; none where the engine does not take the graph.
Plan try_plan(Handle handle, const Description& engine);

void execute(const Plan& plan, Handle handle, int64_t count, const int64_t* ids, void* const* pointers,
             void* workspace);

}  // namespace mica::cuda::cudnn
