// safetensors, .npy, .npz and HDF5 files: what is written is read back, and damage is an error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "mica/hdf5.h"
#include "mica/mica.h"
#include "mica/tensor_files.h"

namespace mica {
namespace {

class TensorFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mica_tensor_files_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

NamedTensors examples() {
  return {{"weight", arange(Scalar(6), DType::Float32).view({2, 3})},
          {"bytes", arange(Scalar(3), DType::UInt8)},
          {"none", empty({0, 4}, DType::Float64)},
          {"scalar", full({}, Scalar(2.5), DType::BFloat16)},
          {"transposed", arange(Scalar(6), DType::Int64).view({2, 3}).t()}};
}

void expect_same(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(equal(a, b));
}

const Tensor& named(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return tensor;
  throw Error(ErrorKind::Index, name);
}

TEST_F(TensorFiles, SafetensorsComeBack) {
  save_safetensors(examples(), path("a.safetensors"), {{"format", "pt"}, {"quote\"", "line\n"}});
  const TensorFile file = load_safetensors(path("a.safetensors"));
  ASSERT_EQ(file.tensors.size(), 5u);
  for (const auto& [name, tensor] : examples()) expect_same(named(file.tensors, name), tensor);
  EXPECT_EQ(file.metadata[1].first, "quote\"");
  EXPECT_EQ(file.metadata[1].second, "line\n");
  named(file.tensors, "weight").zero_();  // stays out of the file
  expect_same(named(load_safetensors(path("a.safetensors")).tensors, "weight"), examples()[0].second);
}

TEST_F(TensorFiles, DamagedSafetensorsAreRefused) {
  const auto refuse = [&](const std::string& bytes) {
    std::ofstream(path("b.safetensors"), std::ios::binary) << bytes;
    EXPECT_THROW(load_safetensors(path("b.safetensors")), Error) << bytes;
  };
  const auto with_header = [](const std::string& header, const std::string& rest) {
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + rest;
  };
  refuse("");
  refuse("short");
  refuse(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  refuse(with_header("{\"a\":", ""));
  refuse(with_header("[]", ""));
  refuse(with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "1234"));
  refuse(with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "12345678"));
  refuse(with_header("{\"a\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", "12345678"));
  refuse(with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "12345678"));
  refuse(
      with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,8]}}", "12345678"));
  refuse(with_header(std::string(100000, '['), ""));
  EXPECT_THROW(load_safetensors(path("missing.safetensors")), Error);
}

TEST_F(TensorFiles, NumpyArraysComeBack) {
  NamedTensors kept;
  for (const auto& [name, tensor] : examples()) {
    if (tensor.dtype() == DType::BFloat16) {
      EXPECT_THROW(save_npy(tensor, path("a.npy")), Error);
      continue;
    }
    save_npy(tensor, path("a.npy"));
    for (const bool mmap : {false, true}) expect_same(load_npy(path("a.npy"), mmap), tensor);
    kept.emplace_back(name, tensor);
  }
  save_npz(kept, path("a.npz"));
  for (const bool mmap : {false, true}) {
    const NamedTensors back = load_npz(path("a.npz"), mmap);
    ASSERT_EQ(back.size(), kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(back[i].first, kept[i].first);
      expect_same(back[i].second, kept[i].second);
    }
  }
}

TEST_F(TensorFiles, NumpyHeadersOfOthers) {
  // As NumPy writes it: Fortran's order, version 1.0.
  std::string header = "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }";
  header += std::string(118 - header.size() - 1, ' ') + "\n";
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += header;
  for (const double v : {1.0, 4.0, 2.0, 5.0, 3.0, 6.0}) bytes.append(reinterpret_cast<const char*>(&v), 8);
  std::ofstream(path("f.npy"), std::ios::binary) << bytes;
  expect_same(load_npy(path("f.npy")), arange(Scalar(1), Scalar(7), DType::Float64).view({2, 3}));
  for (const size_t length : {size_t{0}, size_t{5}, size_t{20}, size_t{128}, bytes.size() - 1}) {
    std::ofstream(path("g.npy"), std::ios::binary) << bytes.substr(0, length);
    EXPECT_THROW(load_npy(path("g.npy")), Error) << length;
    std::ofstream(path("g.npz"), std::ios::binary) << bytes.substr(0, length);
    EXPECT_THROW(load_npz(path("g.npz")), Error) << length;
  }
}

TEST_F(TensorFiles, Hdf5Blocks) {
  std::unique_ptr<Hdf5File> file;
  try {
    file = std::make_unique<Hdf5File>(path("a.h5"), Hdf5File::Mode::Create);
  } catch (const Error& e) {
    GTEST_SKIP() << "no HDF5 library here: " << e.what();
  }
  const Tensor whole = arange(Scalar(60), DType::Float32).view({3, 4, 5});
  file->write("group/numbers", whole);
  file->write("truth", whole.gt(Scalar(7)));
  file->write("waves", complex(whole, whole));
  file->write("short", whole.to(DType::Float16));
  EXPECT_THROW(file->write("truth", whole), Error);
  file.reset();
  Hdf5File back(path("a.h5"), Hdf5File::Mode::Append);
  EXPECT_EQ(back.names(), (std::vector<std::string>{"group", "short", "truth", "waves"}));
  EXPECT_TRUE(back.has("group/numbers"));
  EXPECT_FALSE(back.has("nothing/at/all"));
  expect_same(back.read("group/numbers"), whole);
  expect_same(back.read("truth"), whole.gt(Scalar(7)));
  expect_same(back.read("waves"), complex(whole, whole));
  expect_same(back.read("short"), whole.to(DType::Float16));
  expect_same(back.read("group/numbers", {1, 0, 2}, {2, 3, 1}), whole.narrow(0, 1, 2).narrow(1, 0, 3).narrow(2, 2, 1));
  back.write("group/numbers", zeros({1, 4, 5}), {2, 0, 0});
  EXPECT_EQ(back.read("group/numbers", {2, 0, 0}, {1, 4, 5}).sum().item<float>(), 0.0f);
  EXPECT_THROW(back.read("group/numbers", {1, 0, 2}, {3, 1, 1}), Error);
  EXPECT_THROW(back.read("missing"), Error);
}

}  // namespace
}  // namespace mica
