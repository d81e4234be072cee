// Pickles: the reader that builds values, and the pass that puts torch's names into Python's pickles.
#include "fuzz_input.h"
#include "io/pickle_globals.h"
#include "io/pickle_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mica;
  const std::string_view pickle(reinterpret_cast<const char*>(data), size);
  fuzz::expect_no_crash([&] {
    const Value value = io::unpickle(pickle, [](const io::StorageReference& r) {
      MICA_CHECK(r.count <= 64, "a storage of ", r.count, " elements");
      Storage storage = StorageImpl::allocate(static_cast<size_t>(r.count * element_size(r.dtype)), kCPU);
      if (storage->nbytes()) std::memset(storage->data(), 1, storage->nbytes());
      return storage;
    });
    // What was loaded can be saved again and every tensor read.
    io::pickle(value, [](const Storage&) { return std::string("0"); });
    if (value.is_tensor() && value.as_tensor().is_cpu() && value.as_tensor().numel() < 10'000)
      value.as_tensor().clone();
  });
  return fuzz::expect_no_crash([&] { io::resolve_named_globals(pickle); });
}
