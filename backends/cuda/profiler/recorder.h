// Records what the GPU runs while somebody profiles: kernels, copies and fills with their times, through CUPTI, which
// is opened when it is first asked for. Times are those of mica::profiler's clock, so that both records have one time
// line.
#pragma once

#include <string>

namespace mica::cuda {

// Throws an error that says what to install where CUPTI is missing.
void start_recording();
// Waits for the device and returns what it ran as JSON: a list of rows [kind, name, start_ns, end_ns, device, stream,
// correlation, launch_start_ns, launch_end_ns, launch_thread, bytes, [grid], [block], registers, shared memory, the
// call that launched it].
std::string stop_recording();
// "" where CUPTI can be used, else the reason why not.
std::string why_no_recording();

}  // namespace mica::cuda
