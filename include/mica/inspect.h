// Looking into tensors: where their elements lie, what their memory holds besides, and how a view came about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mica/core/options.h"
#include "mica/tensor.h"

namespace mica::inspect {

// Whether a geometry is contiguous in a memory format; if not, the first dimension, from the innermost outwards, whose
// stride is another than the format asks for.
struct Contiguity {
  MemoryFormat format = MemoryFormat::Contiguous;
  bool applies = true;  // channels-last formats are for 4 and 5 dimensions
  bool holds = false;
  int64_t dimension = -1;
  int64_t expected = 0, found = 0;
};
Contiguity contiguity(IntArrayRef sizes, IntArrayRef strides, MemoryFormat format);
const char* name(MemoryFormat format);   // "contiguous_format"
const char* layout_name(Layout layout);  // "sparse_coo"

// Where the elements of a geometry lie, counted in elements.
struct Reach {
  int64_t lowest = 0, highest = -1;  // places in the storage; highest < lowest where there is no element
  int64_t distinct = 0;              // different places: fewer than elements where some share one
  bool exact = true;                 // false: too large to count, `distinct` is an upper bound
};
Reach reach(IntArrayRef sizes, IntArrayRef strides, int64_t offset);

// A view operation, as Python writes it, and the geometry after it.
struct ViewStep {
  std::string operation;
  DimVector sizes, strides;
  int64_t offset = 0;
};

// Operations that lead from the geometry of `base` to that of `view`: slices, a permutation, new and stretched
// dimensions, a view in other sizes, or as_strided where nothing simpler does. They are found from the numbers and
// carried out to be sure, so they may be others than the program used.
std::vector<ViewStep> view_steps(const Tensor& base, const Tensor& view);

// One of the tensors that a sparse, quantized or nested tensor is made of.
struct Part {
  std::string name;  // as the method is called that returns it
  DimVector sizes, strides;
  DType dtype = DType::Undefined;
  int64_t bytes = 0;  // of its elements
  uint64_t address = 0;
};
struct SparseAnatomy {
  int64_t specified = 0;   // the number of indices that have a value, or a block of values
  int64_t stored = 0;      // elements that are in memory
  int64_t break_even = 0;  // up to this number of specified indices the sparse tensor is smaller than the dense one
  int64_t bytes_each = 0;  // the bytes that one more index takes
  int64_t sparse_dims = 0, dense_dims = 0;
  bool coalesced = true;  // COO: no index twice, and in order
};
struct QuantizedAnatomy {
  double scale = 1;  // per tensor: a real number is (integer - zero_point) * scale
  int64_t zero_point = 0;
  int64_t axis = -1;               // per channel: the dimension whose slices have a scale each
  double lowest = 0, highest = 0;  // per tensor: the real numbers at the ends of the range
};
struct NestedAnatomy {
  DimVector sizes;  // -1 where lengths differ
  DimVector lengths;
  int64_t ragged_dim = 1;
};

struct Anatomy {
  // A sparse tensor has no strides and no offset here, and its storage stands for the memory of its parts. For a nested
  // tensor these are the strides, offset and storage of its values.
  DimVector sizes, strides;
  int64_t offset = 0, numel = 0;
  DType dtype = DType::Undefined;
  Device device;
  int64_t element_size = 0;
  bool conjugated = false, negated = false;
  Layout layout = Layout::Strided;
  std::vector<std::string> names;  // one for each dimension, "" where it has none; empty where no dimension has a name

  std::vector<Part> parts;  // a plain tensor has none
  int64_t part_bytes = 0;   // the bytes of all parts
  int64_t dense_bytes = 0;  // the bytes of a plain tensor of the same elements: float32 if quantized, padded if nested
  std::optional<SparseAnatomy> sparse;
  std::optional<QuantizedAnatomy> quantized;
  std::optional<NestedAnatomy> nested;

  int64_t storage_bytes = 0;
  uint64_t storage_address = 0, address = 0;
  uint32_t storage_users = 0;  // tensors and saved tensors that hold the storage, this one among them
  uint32_t version = 0;
  bool foreign_memory = false;  // the memory belongs to another library
  Reach reached;
  int64_t reached_bytes = 0;  // bytes of the storage that this tensor reaches
  int64_t hole_bytes = 0;     // bytes between its first and its last element that it skips

  std::vector<Contiguity> formats;
  bool dense = false;     // every byte between its first and last element is its own, in any order
  bool overlaps = false;  // two indices reach one element

  bool is_view = false;
  DimVector base_sizes, base_strides;
  int64_t base_offset = 0;
  std::vector<ViewStep> steps;  // the steps that lead from the base to the view

  bool requires_grad = false, is_leaf = true, has_grad = false;
  std::string grad_fn;               // the name of the tensor's node; empty for a leaf
  std::vector<std::string> history;  // names of the nodes from its own to the first leaf
};
Anatomy explain(const Tensor& t);
// Explains sequences that lie in a row along dimension `ragged_dim` - 1 of `values`, each beginning at an offset.
// `lengths`, if defined, says how long each one is; otherwise it goes up to the next one.
Anatomy explain_nested(const Tensor& values, const Tensor& offsets, const Tensor& lengths, int64_t ragged_dim = 1);

// For a terminal; escape codes of colours if wanted.
std::string to_text(const Anatomy& anatomy, bool colours = false);
std::string readable_bytes(int64_t bytes);  // "1.50 MiB"

}  // namespace mica::inspect
