// Parts of a GPU's multiprocessors with streams of their own (the driver's green contexts), by number.
#pragma once

#include <string>

namespace mica::cuda {

// A context of at least so many multiprocessors of a device: its handle and how many it got, "handle count".
std::string new_green_context(int device, int multiprocessors);
// A stream whose work runs on the context's multiprocessors alone. It waits for no other stream by itself.
std::string new_green_stream(const std::string& context);
// Its streams are done first.
void free_green_stream(const std::string& stream);
void free_green_context(const std::string& context);

}  // namespace mica::cuda
