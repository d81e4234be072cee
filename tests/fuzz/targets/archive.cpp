// The zip container of checkpoints, and the whole way from a file to tensors.
#include <sstream>

#include "fuzz_input.h"
#include "io/archive.h"
#include "mica/serialize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mica;
  fuzz::expect_no_crash([&] {
    const io::ArchiveReader archive(std::make_unique<io::MemorySource>(reinterpret_cast<const char*>(data), size),
                                    "the input");
    for (const std::string& name : archive.names()) fuzz::expect_no_crash([&] { archive.read(name); });
  });
  return fuzz::expect_no_crash([&] {
    std::istringstream stream(std::string(reinterpret_cast<const char*>(data), size));
    load(stream);
  });
}
