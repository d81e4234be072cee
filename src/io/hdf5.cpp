#include "mica/hdf5.h"

#include "io/hdf5_library.h"
#include "mica/ops.h"

namespace mica {

namespace {

using io::Hid;
using io::HSize;

// The library's own numbers.
constexpr unsigned kReadOnly = 0, kReadWrite = 1, kTruncate = 2;
constexpr int kIntegerClass = 0, kFloatClass = 1, kCompoundClass = 6, kEnumerationClass = 8;
constexpr int kUnsigned = 0, kLittleEndian = 0, kSelectSet = 0, kByName = 0, kIncreasing = 0;

// An object of the library, closed in the end.
class Object {
 public:
  Object(Hid id, int (*close)(Hid), const std::string& what) : id_(id), close_(close) {
    MICA_CHECK(id >= 0, "HDF5: ", what);
  }
  ~Object() { close_(id_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  operator Hid() const { return id_; }

 private:
  Hid id_;
  int (*close_)(Hid);
};

const io::Hdf5Library& lib() { return io::hdf5_library(); }

DType tensor_dtype(Hid type, const std::string& name) {
  const int kind = lib().type_class(type);
  const size_t size = lib().type_size(type);
  if (kind == kIntegerClass) {
    const bool is_unsigned = lib().type_sign(type) == kUnsigned;
    switch (size) {
      case 1:
        return is_unsigned ? DType::UInt8 : DType::Int8;
      case 2:
        return is_unsigned ? DType::UInt16 : DType::Int16;
      case 4:
        return is_unsigned ? DType::UInt32 : DType::Int32;
      case 8:
        return is_unsigned ? DType::UInt64 : DType::Int64;
      default:
        break;
    }
  }
  if (kind == kFloatClass && size == 2) return DType::Float16;
  if (kind == kFloatClass && size == 4) return DType::Float32;
  if (kind == kFloatClass && size == 8) return DType::Float64;
  if (kind == kEnumerationClass && size == 1) return DType::Bool;  // as h5py writes it
  if (kind == kCompoundClass && size == 8) return DType::Complex64;
  if (kind == kCompoundClass && size == 16) return DType::Complex128;
  fail(ErrorKind::NotImplemented,
       cat("HDF5: ", name, " has elements (class ", kind, ", ", size, " bytes) of no tensor"));
}

// The type that files have for a dtype: little-endian, complex and bool as h5py has them.
class FileType {
 public:
  explicit FileType(DType dtype) {
    const io::Hdf5Library& h = lib();
    switch (dtype) {
      case DType::Bool: {
        id_ = h.enum_create(h.constant("H5T_STD_I8LE_g"));
        const int8_t no = 0, yes = 1;
        h.enum_insert(id_, "FALSE", &no);
        h.enum_insert(id_, "TRUE", &yes);
        break;
      }
      case DType::Float16:
        id_ = h.type_copy(h.constant("H5T_IEEE_F32LE_g"));
        h.type_set_fields(id_, 15, 10, 5, 0, 10);
        h.type_set_size(id_, 2);
        h.type_set_bias(id_, 15);
        break;
      case DType::Complex64:
      case DType::Complex128: {
        const size_t half = dtype == DType::Complex64 ? 4 : 8;
        const Hid part = h.constant(half == 4 ? "H5T_IEEE_F32LE_g" : "H5T_IEEE_F64LE_g");
        id_ = h.type_create(kCompoundClass, 2 * half);
        h.type_insert(id_, "r", 0, part);
        h.type_insert(id_, "i", half, part);
        break;
      }
      default:
        id_ = h.type_copy(h.constant(plain_name(dtype)));
    }
    MICA_CHECK(id_ >= 0, "HDF5: no type for ", dtype);
  }
  ~FileType() { lib().type_close(id_); }
  FileType(const FileType&) = delete;
  FileType& operator=(const FileType&) = delete;
  operator Hid() const { return id_; }

 private:
  static const char* plain_name(DType dtype) {
    switch (dtype) {
      case DType::UInt8:
        return "H5T_STD_U8LE_g";
      case DType::Int8:
        return "H5T_STD_I8LE_g";
      case DType::UInt16:
        return "H5T_STD_U16LE_g";
      case DType::Int16:
        return "H5T_STD_I16LE_g";
      case DType::UInt32:
        return "H5T_STD_U32LE_g";
      case DType::Int32:
        return "H5T_STD_I32LE_g";
      case DType::UInt64:
        return "H5T_STD_U64LE_g";
      case DType::Int64:
        return "H5T_STD_I64LE_g";
      case DType::Float32:
        return "H5T_IEEE_F32LE_g";
      case DType::Float64:
        return "H5T_IEEE_F64LE_g";
      default:
        fail(cat("HDF5 has no type for ", dtype, "; convert the tensor first"));
    }
  }
  Hid id_ = -1;
};

DimVector sizes_of(Hid space) {
  const int ndims = lib().space_ndims(space);
  MICA_CHECK(ndims >= 0, "HDF5: a dataset without a shape");
  std::vector<HSize> dims(static_cast<size_t>(ndims) + 1);
  lib().space_dims(space, dims.data(), nullptr);
  DimVector sizes;
  for (int d = 0; d < ndims; ++d) {
    MICA_CHECK(dims[static_cast<size_t>(d)] <= static_cast<HSize>(INT64_MAX), "HDF5: a dataset is too large");
    sizes.push_back(static_cast<int64_t>(dims[static_cast<size_t>(d)]));
  }
  return sizes;
}

std::vector<HSize> as_sizes(IntArrayRef sizes) {
  std::vector<HSize> result;
  for (const int64_t n : sizes) result.push_back(static_cast<HSize>(n));
  result.push_back(0);  // so that a list without dimensions has an address
  return result;
}

// Narrows the file's space to a block, which must lie within it.
void select_block(Hid space, IntArrayRef start, IntArrayRef count, const std::string& name) {
  const DimVector sizes = sizes_of(space);
  MICA_CHECK(start.size() == sizes.size() && count.size() == sizes.size(), "HDF5: ", name, " has ", sizes.size(),
             " dimensions, and a block of ", start.size(), " is asked for");
  for (size_t d = 0; d < sizes.size(); ++d)
    MICA_CHECK(start[d] >= 0 && count[d] >= 0 && count[d] <= sizes[d] && start[d] <= sizes[d] - count[d],
               "HDF5: the block at ", start, " of ", count, " elements lies outside of ", name, ", which has ",
               IntArrayRef(sizes));
  if (sizes.empty()) return;
  const std::vector<HSize> from = as_sizes(start), many = as_sizes(count);
  MICA_CHECK(lib().space_select(space, kSelectSet, from.data(), nullptr, many.data(), nullptr) >= 0,
             "HDF5: no block of ", name);
}

}  // namespace

struct Hdf5File::Handle {
  Hid file = -1;
  std::string path;
  ~Handle() {
    std::lock_guard lock(io::hdf5_lock());
    if (file >= 0) lib().file_close(file);
  }
};

Hdf5File::Hdf5File(const std::string& path, Mode mode) {
  std::lock_guard lock(io::hdf5_lock());
  Hid file = -1;
  if (mode == Mode::Create) {
    file = lib().file_create(path.c_str(), kTruncate, 0, 0);
  } else {
    file = lib().file_open(path.c_str(), mode == Mode::Read ? kReadOnly : kReadWrite, 0);
  }
  MICA_CHECK(file >= 0, "HDF5: ", path, " could not be ", mode == Mode::Create ? "made" : "opened");
  handle_ = std::make_unique<Handle>();
  handle_->file = file;
  handle_->path = path;
}

Hdf5File::~Hdf5File() = default;
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

std::vector<std::string> Hdf5File::names(const std::string& group) const {
  std::lock_guard lock(io::hdf5_lock());
  std::vector<std::string> found;
  for (HSize i = 0;; ++i) {
    const std::ptrdiff_t length =
        lib().name_by_index(handle_->file, group.c_str(), kByName, kIncreasing, i, nullptr, 0, 0);
    if (length < 0) return found;
    std::string name(static_cast<size_t>(length) + 1, '\0');
    lib().name_by_index(handle_->file, group.c_str(), kByName, kIncreasing, i, name.data(), name.size(), 0);
    name.pop_back();
    found.push_back(std::move(name));
  }
}

bool Hdf5File::has(const std::string& name) const {
  std::lock_guard lock(io::hdf5_lock());
  for (size_t at = name.find('/', 1);; at = name.find('/', at + 1)) {  // every group on the way must be there
    if (lib().link_exists(handle_->file, name.substr(0, at).c_str(), 0) <= 0) return false;
    if (at == std::string::npos) return true;
  }
}

DimVector Hdf5File::sizes(const std::string& dataset) const {
  std::lock_guard lock(io::hdf5_lock());
  const Object set(lib().dataset_open(handle_->file, dataset.c_str(), 0), lib().dataset_close,
                   handle_->path + " has no dataset " + dataset);
  const Object space(lib().dataset_space(set), lib().space_close, "no shape");
  return sizes_of(space);
}

DType Hdf5File::dtype(const std::string& dataset) const {
  std::lock_guard lock(io::hdf5_lock());
  const Object set(lib().dataset_open(handle_->file, dataset.c_str(), 0), lib().dataset_close,
                   handle_->path + " has no dataset " + dataset);
  const Object type(lib().dataset_type(set), lib().type_close, "no type");
  return tensor_dtype(type, dataset);
}

Tensor Hdf5File::read(const std::string& dataset) const {
  const DimVector whole = sizes(dataset);
  const DimVector start(whole.size(), 0);
  return read(dataset, start, whole);
}

Tensor Hdf5File::read(const std::string& dataset, IntArrayRef start, IntArrayRef count) const {
  for (const int64_t n : count) MICA_CHECK(n >= 0, "HDF5: a block of ", dataset, " cannot have ", n, " elements");
  const DType dtype = this->dtype(dataset);
  {
    // Checked before memory is allocated: a block outside of the dataset may have any size.
    std::lock_guard lock(io::hdf5_lock());
    const Object set(lib().dataset_open(handle_->file, dataset.c_str(), 0), lib().dataset_close,
                     handle_->path + " has no dataset " + dataset);
    const Object space(lib().dataset_space(set), lib().space_close, "no shape");
    select_block(space, start, count, dataset);
  }
  // An operation runs here, so the lock is not held.
  const Tensor tensor = empty(count, TensorOptions(dtype).device(kCPU));
  if (tensor.numel() == 0) return tensor;
  std::lock_guard lock(io::hdf5_lock());
  const Object set(lib().dataset_open(handle_->file, dataset.c_str(), 0), lib().dataset_close,
                   handle_->path + " has no dataset " + dataset);
  const Object type(lib().dataset_type(set), lib().type_close, "no type");
  const Object space(lib().dataset_space(set), lib().space_close, "no shape");
  select_block(space, start, count, dataset);
  MICA_CHECK(tensor_dtype(type, dataset) == dtype, "HDF5: ", dataset, " has changed while it was read");
  // Reads with the file's own type where its bytes are the same as ours. Otherwise the library converts.
  const FileType ours(dtype);
  const bool same = lib().type_order(type) == kLittleEndian || dtype == DType::Bool || tensor.is_complex();
  const std::vector<HSize> dims = as_sizes(count);
  const Object memory(lib().space_create(static_cast<int>(count.size()), dims.data(), nullptr), lib().space_close,
                      "no memory space");
  MICA_CHECK(lib().dataset_read(set, same ? Hid(type) : Hid(ours), memory, space, 0, tensor.data_ptr()) >= 0,
             "HDF5: ", dataset, " of ", handle_->path, " could not be read");
  return tensor;
}

void Hdf5File::write(const std::string& dataset, const Tensor& tensor) {
  const Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(TensorOptions(kCPU)).contiguous();
  std::lock_guard lock(io::hdf5_lock());
  const FileType type(plain.dtype());
  const std::vector<HSize> dims = as_sizes(plain.sizes());
  const Object space(lib().space_create(static_cast<int>(plain.dim()), dims.data(), nullptr), lib().space_close,
                     "no shape");
  const Object groups(lib().list_create(lib().constant("H5P_CLS_LINK_CREATE_ID_g")), lib().list_close, "no list");
  lib().make_groups(groups, 1);
  const Object set(lib().dataset_create(handle_->file, dataset.c_str(), type, space, groups, 0, 0), lib().dataset_close,
                   dataset + " could not be made in " + handle_->path + ": is it there already?");
  if (plain.numel() == 0) return;
  MICA_CHECK(lib().dataset_write(set, type, 0, 0, 0, plain.data_ptr()) >= 0, "HDF5: ", dataset,
             " could not be written");
}

void Hdf5File::write(const std::string& dataset, const Tensor& block, IntArrayRef start) {
  const Tensor plain = block.detach().resolve_conj().resolve_neg().to(TensorOptions(kCPU)).contiguous();
  std::lock_guard lock(io::hdf5_lock());
  const Object set(lib().dataset_open(handle_->file, dataset.c_str(), 0), lib().dataset_close,
                   handle_->path + " has no dataset " + dataset);
  const Object space(lib().dataset_space(set), lib().space_close, "no shape");
  select_block(space, start, plain.sizes(), dataset);
  if (plain.numel() == 0) return;
  const FileType type(plain.dtype());
  const std::vector<HSize> dims = as_sizes(plain.sizes());
  const Object memory(lib().space_create(static_cast<int>(plain.dim()), dims.data(), nullptr), lib().space_close,
                      "no memory space");
  MICA_CHECK(lib().dataset_write(set, type, memory, space, 0, plain.data_ptr()) >= 0, "HDF5: ", dataset,
             " could not be written");
}

}  // namespace mica
