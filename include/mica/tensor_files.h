// Files of tensors that other programs write and read: safetensors, and NumPy's .npy and .npz.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mica/serialize.h"

namespace mica {

using FileMetadata = std::vector<std::pair<std::string, std::string>>;

struct TensorFile {
  NamedTensors tensors;  // in the order of their bytes
  FileMetadata metadata;
};

// The tensors' memory is the file's, mapped: nothing is read before it is used, and what is written to a tensor stays
// out of the file. Throws Error for a file that is damaged, whatever its numbers say.
TensorFile load_safetensors(const std::string& path, Device device = kCPU);
void save_safetensors(const NamedTensors& tensors, const std::string& path, const FileMetadata& metadata = {});

// With `mmap`, the array's memory is the file's, as above. Arrays in Fortran's order keep it.
Tensor load_npy(const std::string& path, bool mmap = false);
void save_npy(const Tensor& tensor, const std::string& path);

// Arrays by name; those of a compressed archive are refused.
NamedTensors load_npz(const std::string& path, bool mmap = false);
void save_npz(const NamedTensors& tensors, const std::string& path);

}  // namespace mica
