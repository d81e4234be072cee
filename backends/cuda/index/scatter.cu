// Writing through indices: scatter, index_put, index_add. Where several values are sent to one place, sums are atomic:
// their order, and with it the last bits of a floating sum, may change from run to run, as in torch.
#include "backends/cuda/index/add_rows.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kMaxIndices = 16;

// Strides of the source, the table and the indices.
struct Target {
  Places<3> places;
  int count = 1;
  const int64_t* index[kMaxIndices];
  int64_t sizes[kMaxIndices], strides[kMaxIndices];
  int dims[kMaxIndices];
  bool from_end = false;
  Bounds bounds;

  // False where an index is outside: nothing is written then.
  __device__ bool at(int64_t i, int64_t& source, int64_t& table) const {
    int64_t offsets[3];
    places.at(i, offsets);
    source = offsets[0];
    table = offsets[1];
    for (int k = 0; k < count; ++k) {
      const int64_t given = index[k][offsets[2]];
      const int64_t at = bounds.checked(given, sizes[k], dims[k], from_end);
      if (at == 0 && given != 0 && given != -sizes[k]) return false;
      table += at * strides[k];
    }
    return true;
  }
};

template <class T>
struct Write {
  Target walk;
  T* table;
  const T* source;
  __device__ void operator()(int64_t i) const {
    int64_t from, to;
    if (walk.at(i, from, to)) table[to] = source[from];
  }
};
template <class T>
struct Add {
  Target walk;
  T* table;
  const T* source;
  T alpha;
  bool scaled;
  __device__ void operator()(int64_t i) const {
    int64_t from, to;
    if (!walk.at(i, from, to)) return;
    T value = source[from];
    if (scaled) value = convert<T>(convert<compute_t<T>>(value) * convert<compute_t<T>>(alpha));
    atomic_add(table + to, value);
  }
};

enum class Combine { Product, Largest, Smallest };
template <class T, Combine kHow>
struct Update {
  Target walk;
  T* table;
  const T* source;
  __device__ void operator()(int64_t i) const {
    int64_t from, to;
    if (!walk.at(i, from, to)) return;
    using C = compute_t<T>;
    const C value = convert<C>(source[from]);
    atomic_update(table + to, [=](T old_element) {
      const C old = convert<C>(old_element);
      if constexpr (kHow == Combine::Product) {
        return convert<T>(static_cast<C>(old * value));
      } else if constexpr (kHow == Combine::Largest) {
        return convert<T>(old != old || old > value ? old : value);
      } else {
        return convert<T>(old != old || old < value ? old : value);
      }
    });
  }
};

void write(const Target& walk, const TensorView& table, const TensorView& source) {
  visit_size(element_size(table.dtype), [&]<class T>(Tag<T>) {
    for_each(table.device.index(), walk.places.numel, Write<T>{walk, table.ptr<T>(), source.ptr<const T>()});
  });
}

void add(const char* op, const Target& walk, const TensorView& table, const TensorView& source, const Scalar& alpha) {
  const bool scaled = !(alpha == Scalar(1) || alpha == Scalar(1.0));
  visit_number_bool(op, table.dtype, [&]<class T>(Tag<T>) {
    T factor{};
    if constexpr (is_complex_v<T>) {
      factor = number<T>(alpha);
    } else if constexpr (std::is_same_v<T, half>) {
      factor = __float2half_rn(alpha.cast<float>());
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      factor = __float2bfloat16_rn(alpha.cast<float>());
    } else {
      factor = alpha.cast<T>();
    }
    for_each(table.device.index(), walk.places.numel,
             Add<T>{walk, table.ptr<T>(), source.ptr<const T>(), factor, scaled});
  });
}

template <Combine kHow>
void update(const char* op, const Target& walk, const TensorView& table, const TensorView& source) {
  auto run = [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) > 8) {
      unsupported_dtype(op, table.dtype);
    } else {
      for_each(table.device.index(), walk.places.numel, Update<T, kHow>{walk, table.ptr<T>(), source.ptr<const T>()});
    }
  };
  if constexpr (kHow == Combine::Product) {
    visit_number_bool(op, table.dtype, run);
  } else {
    visit_real_bool(op, table.dtype, run);
  }
}

}  // namespace

void scatter(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& src,
             std::string_view reduce) {
  if (index.numel == 0) return;
  DeviceGuard guard(self.device.index());
  Target walk{};
  walk.bounds = Bounds::of("scatter", self.device.index());
  for (int d = index.ndim - 1; d >= 0; --d)
    walk.places.add(index.sizes[d], {src.strides[d], d == dim ? 0 : self.strides[d], index.strides[d]});
  walk.places.finish();
  walk.index[0] = index.ptr<const int64_t>();
  walk.sizes[0] = self.sizes[dim];
  walk.strides[0] = self.strides[dim];
  walk.dims[0] = static_cast<int>(dim);
  if (reduce.empty()) return write(walk, self, src);
  if (reduce == "sum") return add("scatter_add", walk, self, src, 1);
  if (reduce == "prod") return update<Combine::Product>("scatter_prod", walk, self, src);
  if (reduce == "amax") return update<Combine::Largest>("scatter_amax", walk, self, src);
  MICA_CHECK(reduce == "amin", "scatter: no such reduction: ", reduce);
  update<Combine::Smallest>("scatter_amin", walk, self, src);
}

void index_put(const TensorView& self, int64_t first, TensorViewList indices, const TensorView& values,
               bool accumulate) {
  if (values.numel == 0) return;
  MICA_CHECK(indices.size() <= kMaxIndices, "index_put_(): at most ", kMaxIndices, " indices on ", self.device);
  DeviceGuard guard(self.device.index());
  Target walk{};
  walk.bounds = Bounds::of("index_put_", self.device.index());
  walk.count = static_cast<int>(indices.size());
  walk.from_end = true;
  const int replaced = indices[0]->ndim;
  int64_t step = 1;
  for (int d = values.ndim - 1; d >= 0; --d) {
    if (d >= first && d < first + replaced) {
      walk.places.add(values.sizes[d], {values.strides[d], 0, step});
      step *= values.sizes[d];
    } else {
      const int to = d < first ? d : d - replaced + walk.count;
      walk.places.add(values.sizes[d], {values.strides[d], self.strides[to], 0});
    }
  }
  walk.places.finish();
  for (int k = 0; k < walk.count; ++k) {
    walk.index[k] = indices[static_cast<size_t>(k)]->ptr<const int64_t>();
    walk.sizes[k] = self.sizes[first + k];
    walk.strides[k] = self.strides[first + k];
    walk.dims[k] = static_cast<int>(first) + k;
  }
  if (accumulate) return add("index_put_", walk, self, values, 1);
  write(walk, self, values);
}

void index_add(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& source, Scalar alpha) {
  if (source.numel == 0) return;
  DeviceGuard guard(self.device.index());
  switch (self.dtype) {
    case DType::Float32:
      if (add_rows<float>(self, dim, index, source, alpha)) return;
      break;
    case DType::Float16:
      if (add_rows<half>(self, dim, index, source, alpha)) return;
      break;
    case DType::BFloat16:
      if (add_rows<bfloat16>(self, dim, index, source, alpha)) return;
      break;
    default:
      break;
  }
  Target walk{};
  walk.bounds = Bounds::of("index_add_", self.device.index());
  for (int d = source.ndim - 1; d >= 0; --d)
    walk.places.add(source.sizes[d],
                    {source.strides[d], d == dim ? 0 : self.strides[d], d == dim ? index.strides[0] : 0});
  walk.places.finish();
  walk.index[0] = index.ptr<const int64_t>();
  walk.sizes[0] = self.sizes[dim];
  walk.strides[0] = self.strides[dim];
  walk.dims[0] = static_cast<int>(dim);
  add("index_add_", walk, self, source, alpha);
}

}  // namespace mica::cuda
