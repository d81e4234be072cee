// Checkpoints from C++: what is saved comes back, and damage is an error. That torch reads them is tested in
// tests/torch/test_live_files.py.
#include "mica/serialize.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "io/archive.h"
#include "io/crc32.h"
#include "io/pickle_values.h"
#include "mica/mica.h"

namespace mica {
namespace {

class Checkpoint : public testing::Test {
 protected:
  std::string path = testing::TempDir() + "mica_checkpoint_" + std::to_string(getpid()) + ".pt";
  void TearDown() override { std::remove(path.c_str()); }

  std::string file() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

Value saved_and_loaded(const Value& value) {
  std::stringstream stream;
  save(value, stream);
  return load(stream);
}

TEST_F(Checkpoint, KeepsPlainValues) {
  const Value nested = Value::dict({{"none", Value()},
                                    {"flag", true},
                                    {"small", 3},
                                    {"large", int64_t{1} << 40},
                                    {"negative", -5},
                                    {"ratio", 0.25},
                                    {"text", "h\xc3\xa9llo"},
                                    {7, Value::tuple({1, "two", Value::list()})},
                                    {"bytes", Value::bytes(std::string("\0\x7f\xff", 3))},
                                    {"dtype", Value::name("torch.float32")}});
  save(nested, path);
  const Value loaded = load(path);
  EXPECT_EQ(loaded.size(), 10u);
  EXPECT_TRUE(loaded.at("none").is_none());
  EXPECT_TRUE(loaded.at("flag").as_bool());
  EXPECT_EQ(loaded.at("small").as_int(), 3);
  EXPECT_EQ(loaded.at("large").as_int(), int64_t{1} << 40);
  EXPECT_EQ(loaded.at("negative").as_int(), -5);
  EXPECT_EQ(loaded.at("ratio").as_double(), 0.25);
  EXPECT_EQ(loaded.at("text").as_string(), "h\xc3\xa9llo");
  EXPECT_EQ(loaded.at(7)[1].as_string(), "two");
  EXPECT_EQ(loaded.at(7)[2].size(), 0u);
  EXPECT_EQ(loaded.at("bytes").as_string(), std::string("\0\x7f\xff", 3));
  EXPECT_EQ(loaded.at("dtype").as_string(), "torch.float32");
  EXPECT_THROW(loaded.at("small").as_tensor(), Error);
  EXPECT_THROW(loaded.at("absent"), Error);
}

TEST_F(Checkpoint, KeepsTensorsTheirViewsAndSharing) {
  const Tensor x = arange(0, 6).to(DType::Float32).reshape({2, 3});
  for (const bool mmap : {false, true}) {
    save(NamedTensors{{"x", x}, {"t", x.t()}, {"row", x[1]}, {"empty", empty({0, 2})}}, path);
    LoadOptions options;
    options.mmap = mmap;
    const Value loaded = load(path, options);
    const Tensor y = loaded.at("x").as_tensor();
    EXPECT_TRUE(equal(y, x));
    EXPECT_EQ(loaded.at("t").as_tensor().stride(0), 1);
    EXPECT_EQ(loaded.at("row").as_tensor().storage_offset(), 3);
    EXPECT_EQ(loaded.at("row").as_tensor().storage(), y.storage());
    EXPECT_EQ(loaded.at("empty").as_tensor().size(1), 2);
  }
}

TEST_F(Checkpoint, KeepsEveryDtypeAndRequiresGrad) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (is_packed_quantized(dtype)) continue;  // no tensor is of it without a quantizer
    const Tensor bytes = arange(3 * element_size(dtype), TensorOptions(DType::UInt8));
    const Tensor x = is_storage_only(dtype) ? bytes.view(dtype) : ones({3}).to(dtype);
    const Tensor y = saved_and_loaded(x).as_tensor();
    EXPECT_EQ(y.dtype(), x.dtype());
    EXPECT_EQ(std::memcmp(y.data_ptr(), x.data_ptr(), static_cast<size_t>(x.nbytes())), 0);
  }
  const Tensor x = ones({2});
  x.requires_grad_(true);
  EXPECT_TRUE(saved_and_loaded(x).as_tensor().requires_grad());
  Tensor t;
  save(x, path);
  load(t, path);
  EXPECT_TRUE(t.requires_grad());
}

TEST_F(Checkpoint, ReplacesAFileWholeAndKeepsItsPermissions) {
  save(ones({2}), path);
  chmod(path.c_str(), 0640);
  const std::string before = file();
  EXPECT_THROW(save(Value::list({ones({2}), Tensor()}), path), Error);  // an undefined tensor: nothing is written
  EXPECT_EQ(file(), before);
  save(zeros({2}), path);
  struct stat status {};
  stat(path.c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_EQ(load(path).as_tensor()[0].item<float>(), 0);
}

TEST_F(Checkpoint, RefusesTruncatedAndDamagedFiles) {
  save(NamedTensors{{"x", arange(0, 100)}}, path);
  const std::string whole = file();
  for (size_t n = 0; n < whole.size(); n += 7) {
    std::istringstream stream(whole.substr(0, n));
    EXPECT_THROW(load(stream), Error) << n;
  }
  // A flipped bit is an error, or changes nothing that is read.
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 0x10;
    std::istringstream stream(damaged);
    try {
      EXPECT_TRUE(equal(load(stream).at("x").as_tensor(), arange(0, 100))) << i;
    } catch (const Error&) {
    }
  }
  std::string damaged = whole;
  damaged[damaged.find("data/0") + 200] ^= 1;
  std::ofstream(path, std::ios::binary) << damaged;
  try {
    load(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("data/0"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST_F(Checkpoint, NamesTheClassThatItRefuses) {
  std::stringstream stream;
  {
    struct Sink : io::Sink {
      std::ostream& out;
      explicit Sink(std::ostream& o) : out(o) {}
      void write(const void* data, size_t n) override { out.write(static_cast<const char*>(data), n); }
    } sink(stream);
    io::ArchiveWriter archive(sink, "archive");
    const std::string whole = std::string(
        "\x80\x02"
        "cposix\nsystem\nX\x02\0\0\0ls\x85R.",
        26);
    archive.write("data.pkl", whole.data(), whole.size());
    archive.finish();
  }
  try {
    load(stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("posix.system"), std::string::npos) << error.what();
  }
}

TEST(Value, DestroysDeepNestingWithoutRecursion) {
  Value outer = Value::list();
  for (int i = 0; i < 1000000; ++i) outer = Value::list({outer});
}

Value load_pickle(const std::string& pickle) {
  return io::unpickle(pickle, [](const io::StorageReference&) { return StorageImpl::allocate(32, kCPU); });
}

std::string repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Pickle, NestsAsDeepAsItLikes) {
  EXPECT_EQ(load_pickle("\x80\x02" + ("]" + repeated("q\x01]h\x01\x61", 0)) + ".").size(), 0u);
  EXPECT_EQ(load_pickle("\x80\x02)" + repeated("\x85", 200'000) + ".").size(), 1u);
}

// Each level calls the function on the level within: Python refuses it, and so does this reader.
TEST(Pickle, RefusesCallsWithinCalls) {
  const std::string function = "ctorch._tensor\n_rebuild_from_type_v2\n";
  const std::string open = function + "(" + function + "N";
  const std::string pickle =
      "\x80\x02" + repeated("(" + function + "N", 200'000) + ")" + repeated("Nt", 200'000) + "0" + open + ")NtR.";
  EXPECT_THROW(load_pickle(pickle), Error);
  // What the first call gets is a nest of tuples that name the function again.
  EXPECT_THROW(load_pickle("\x80\x02" + function + repeated("(" + function + "N", 200'000) + ")" +
                           repeated("Nt", 200'000) + "R."),
               Error);
}

TEST(Pickle, RefusesWhatHoldsItself) {
  for (const char* pickle : {"]q\x01h\x01\x61.", "}q\x01K\x01h\x01s.", "]q\x01h\x01\x85\x61.",
                             "]q\x01h\x01\x61"
                             "0N."})
    EXPECT_THROW(load_pickle(pickle), Error) << pickle;
  EXPECT_EQ(load_pickle("]q\x01(]q\x02h\x02h\x02\x65.").size(), 3u);  // one list three times
}

TEST(Pickle, RefusesANameThatNothingCalls) {
  EXPECT_THROW(load_pickle("cos\nsystem\n."), Error);
  EXPECT_EQ(load_pickle("ctorch\nfloat16\n.").as_string(), "torch.float16");
  EXPECT_THROW(load_pickle("ctorch\nfloat16\n)R."), Error);
}

TEST(Pickle, BuildsWhatPythonBuilds) {
  EXPECT_EQ(load_pickle("ccollections\nCounter\n}K\x07K\x02s\x85R.").at(7).as_int(), 2);
  EXPECT_EQ(load_pickle("c__builtin__\nset\n](K\x01K\x02\x65\x85R.").size(), 2u);
  EXPECT_EQ(load_pickle("cbuiltins\nbytearray\n)R.").as_string(), "");
  EXPECT_EQ(load_pickle("ctorch\ndevice\nU\x04"
                        "cudaK\x01\x86R.")
                .as_string(),
            "cuda:1");
  EXPECT_EQ(load_pickle("ctorch.serialization\n_get_layout\nU\x0dtorch.strided\x85R.").as_string(), "torch.strided");
  const Tensor meta = load_pickle(
                          "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\x02K\x03\x86"
                          "K\x03K\x01\x86\x89tR.")
                          .as_tensor();
  EXPECT_TRUE(meta.is_meta());
  EXPECT_EQ(meta.sizes(), IntArrayRef({2, 3}));
  // As the first versions of torch wrote tensors: made empty, then given a storage.
  const std::string storage =
      "(U\x07storagectorch\nFloatStorage\nU\x01"
      "0U\x03"
      "cpuK\x08tQ";
  EXPECT_EQ(load_pickle("ctorch\nTensor\n)R(" + storage + "K\x01K\x04\x85K\x01\x85tb.").as_tensor().numel(), 4);
}

TEST(Crc32, AgreesWithItselfInPieces) {
  EXPECT_EQ(io::crc32(0, "123456789", 9), 0xcbf43926u);
  std::string bytes(1000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + i / 7);
  for (size_t n = 0; n <= bytes.size(); n += 13) {
    uint32_t one_by_one = 0;
    for (size_t i = 0; i < n; ++i) one_by_one = io::crc32(one_by_one, &bytes[i], 1);
    EXPECT_EQ(io::crc32(0, bytes.data(), n), one_by_one) << n;
  }
}

}  // namespace
}  // namespace mica
