// Streams and events.
#include <vector>

#include "backends/cuda/bounds.h"
#include "backends/cuda/runtime.h"
#include "mica/core/recording.h"

namespace mica::cuda {

namespace {

// The stream of each device that this thread queues on; null is the default stream.
std::vector<cudaStream_t>& thread_streams() {
  thread_local std::vector<cudaStream_t> streams(static_cast<size_t>(device_count()), nullptr);
  return streams;
}

cudaStream_t handle(const Stream& s) { return static_cast<cudaStream_t>(s.handle); }
cudaEvent_t handle(const Event& e) { return static_cast<cudaEvent_t>(e.handle); }

bool is_done(cudaError_t status, const char* call) {
  if (status == cudaErrorNotReady) return false;
  check(status, call);
  return true;
}

}  // namespace

cudaStream_t current_stream(int index) { return thread_streams()[static_cast<size_t>(index)]; }

Stream stream_of_thread(int index) { return {current_stream(index), Device(DeviceType::CUDA, index)}; }

// Queues the calls that a compiled function has put off, since they come before what is queued now.
void queue_what_is_put_off() {
  if (recording::pending()) recording::flush("a call that orders streams");
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

void set_stream(Stream stream) {
  queue_what_is_put_off();
  thread_streams()[static_cast<size_t>(stream.device.index())] = handle(stream);
}

Stream new_stream(int index, int priority) {
  DeviceGuard guard(index);
  cudaStream_t made;
  MICA_CUDA(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority));
  return {made, Device(DeviceType::CUDA, index)};
}

bool stream_done(Stream stream) {
  queue_what_is_put_off();
  DeviceGuard guard(stream.device.index());
  return is_done(cudaStreamQuery(handle(stream)), "cudaStreamQuery");
}

void synchronize_stream(Stream stream) {
  queue_what_is_put_off();
  DeviceGuard guard(stream.device.index());
  MICA_CUDA(cudaStreamSynchronize(handle(stream)));
  check_bounds(stream.device.index());
}

Event new_event(int index, bool timing) {
  DeviceGuard guard(index);
  cudaEvent_t made;
  MICA_CUDA(cudaEventCreateWithFlags(&made, timing ? cudaEventDefault : cudaEventDisableTiming));
  return {made};
}

void free_event(Event event) { cudaEventDestroy(handle(event)); }

void record_event(Event event, Stream stream) {
  queue_what_is_put_off();
  DeviceGuard guard(stream.device.index());
  MICA_CUDA(cudaEventRecord(handle(event), handle(stream)));
}

void wait_event(Stream stream, Event event) {
  queue_what_is_put_off();
  DeviceGuard guard(stream.device.index());
  MICA_CUDA(cudaStreamWaitEvent(handle(stream), handle(event), 0));
}

bool event_done(Event event) { return is_done(cudaEventQuery(handle(event)), "cudaEventQuery"); }

void synchronize_event(Event event) { MICA_CUDA(cudaEventSynchronize(handle(event))); }

double elapsed_ms(Event from, Event to) {
  float ms = 0;
  MICA_CUDA(cudaEventElapsedTime(&ms, handle(from), handle(to)));
  return ms;
}

}  // namespace mica::cuda
