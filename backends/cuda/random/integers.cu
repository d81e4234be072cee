// random_, randint, randperm, multinomial.
#include <cmath>
#include <limits>
#include <optional>

#include "backends/cuda/bounds.h"
#include "backends/cuda/random/philox.cuh"
#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

void cumsum(const TensorView& out, const TensorView& self, int64_t dim);
void random_exponential(const TensorView& out, double lambd, Generator generator);
void topk(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t k, int64_t dim,
          bool largest, bool sorted);

namespace {

// base + word % count; a count of zero stands for all words.
struct Words32 {
  using Real = uint32_t;
  static constexpr int kDrawn = 4;
  uint32_t count;
  int64_t base;
  __device__ static void draw(uint4 w, uint32_t* out) { out[0] = w.x, out[1] = w.y, out[2] = w.z, out[3] = w.w; }
  __device__ int64_t operator()(uint32_t word, int64_t) const {
    return base + static_cast<int64_t>(count ? word % count : word);
  }
};
struct Words64 {
  using Real = uint64_t;
  static constexpr int kDrawn = 2;
  uint64_t count;
  int64_t base;
  __device__ static void draw(uint4 w, uint64_t* out) {
    out[0] = static_cast<uint64_t>(w.x) << 32 | w.y;
    out[1] = static_cast<uint64_t>(w.z) << 32 | w.w;
  }
  __device__ int64_t operator()(uint64_t word, int64_t) const {
    return static_cast<int64_t>(static_cast<uint64_t>(base) + (count ? word % count : word));
  }
};

// One past the largest integer that a dtype holds exactly.
uint64_t end_of(DType dtype) {
  switch (dtype) {
    case DType::Bool:
      return 2;
    case DType::UInt8:
      return 256;
    case DType::Int8:
      return 128;
    case DType::Int16:
      return uint64_t{1} << 15;
    case DType::UInt16:
      return uint64_t{1} << 16;
    case DType::Int32:
      return uint64_t{1} << 31;
    case DType::UInt32:
      return uint64_t{1} << 32;
    case DType::Int64:
      return uint64_t{1} << 63;
    case DType::Float16:
      return (1 << 11) + 1;
    case DType::BFloat16:
      return (1 << 8) + 1;
    case DType::Float32:
      return (1 << 24) + 1;
    case DType::Float64:
      return (uint64_t{1} << 53) + 1;
    default:
      return 0;
  }
}

template <class T>
struct WriteOrder {
  T* out;
  const uint32_t* order;
  __device__ void operator()(int64_t i) const { out[i] = static_cast<T>(order[i]); }
};

template <class K>
struct KeepLowBits {
  K* keys;
  K mask;
  __device__ void operator()(int64_t i) const { keys[i] &= mask; }
};
// The first of several places whose keys are equal shuffles them, with numbers of a subsequence of its own. A thread
// reads only places of its own keys, and those beside them, which another one may be exchanging: `order` within a group
// of equal keys names members of that group whatever the order.
template <class K>
struct ShuffleEqual {
  const K* keys;
  uint32_t* order;
  int64_t n;
  PhiloxPlace from;
  __device__ K key(int64_t i) const { return keys[order[i]]; }
  __device__ void operator()(int64_t i) const {
    const K mine = key(i);
    if (key(i + 1) != mine || (i > 0 && key(i - 1) == mine)) return;
    int64_t count = 2;
    while (i + count < n && key(i + count) == mine) ++count;
    uint4 words;
    for (int64_t left = count - 1, drawn = 0; left > 0; --left, ++drawn) {
      if (drawn % 4 == 0)
        words = philox_words(from.current_seed(), static_cast<uint64_t>(i),
                             from.current_offset() / 4 + static_cast<uint64_t>(drawn / 4));
      const uint32_t word = drawn % 4 == 0 ? words.x : drawn % 4 == 1 ? words.y : drawn % 4 == 2 ? words.z : words.w;
      const int64_t other = word % static_cast<uint32_t>(left + 1);
      const uint32_t kept = order[i + left];
      order[i + left] = order[i + other];
      order[i + other] = kept;
    }
  }
};

// ---- multinomial

template <class T>
struct Score {
  const T *weights, *arrivals;
  T* scores;
  Bounds bounds;
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    const C w = convert<C>(weights[i]);
    if (!(w >= C(0) && w < static_cast<C>(INFINITY))) bounds.complain();
    scores[i] = convert<T>(w / convert<C>(arrivals[i]));
  }
};
constexpr int64_t kMostRows = 65535;
template <class C>
struct LookUp {
  const C* cumulated;
  int64_t* out;
  int64_t categories, samples;
  PhiloxPlace place;
  Bounds bounds;
  __device__ void operator()(int64_t i) const {
    const int64_t distribution = i / samples, sample = i - distribution * samples;
    const C* row = cumulated + distribution * categories;
    const C total = row[categories - 1];
    if (!(total > C(0))) bounds.complain();
    // Blocks of 128 samples of one distribution, and up to 65535 of those side by side.
    const int64_t width = (samples + 127) / 128 * 128, round = distribution / kMostRows;
    const auto thread = static_cast<uint64_t>((distribution - round * kMostRows) * width + sample);
    const uint4 words =
        philox_words(place.current_seed(), thread, place.current_offset() / 4 + static_cast<uint64_t>(round));
    const C u = static_cast<C>(unit(words.x)) * total;
    int64_t low = 0, high = categories - 1;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (row[middle] < u) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    out[i] = low;
  }
};

PhiloxPlace take(const Generator& generator, uint64_t count) {
  PhiloxGenerator& source = philox(generator);
  std::lock_guard lock(generator.mutex());
  return take_place(source, count);
}

}  // namespace

void random_integers(const TensorView& out, std::optional<int64_t> low, std::optional<int64_t> high,
                     Generator generator) {
  int64_t base = 0;
  uint64_t count;
  if (!low) {
    count = end_of(out.dtype);
  } else {
    base = *low;
    count = high ? static_cast<uint64_t>(*high) - static_cast<uint64_t>(base)
                 : end_of(out.dtype) - static_cast<uint64_t>(base);
  }
  visit_real_bool("random_", out.dtype, [&]<class T>(Tag<T>) {
    // From this many on, remainders of 32 bits would favour the first few too much.
    const uint64_t wide = uint64_t{1} << (low ? 28 : 32);
    if (count == 0 || count >= wide) return draw<T>(out, generator, Words64{count, base});
    draw<T>(out, generator, Words32{static_cast<uint32_t>(count), base});
  });
}

// The numbers below n in the order of random keys. As many bits of the keys count as make equal ones unlikely; what has
// equal keys is shuffled once more.
void random_permutation(const TensorView& out, Generator generator) {
  const int64_t n = out.numel;
  if (n == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  const double size = static_cast<double>(n), threshold = std::log(0.9) * 12;
  const int bits = std::min(64, static_cast<int>(std::ceil(std::log2(size - (6 * size * size + 1) / threshold))));
  const auto permute = [&]<class K>(K, DType dtype) {
    const Buffer memory = buffer(n * static_cast<int64_t>(sizeof(K)), device);
    auto* const keys = static_cast<K*>(memory->data());
    TensorView words = out;
    words.data = keys;
    words.dtype = dtype;
    // Every number but the largest, as random_(min, max) has it.
    if constexpr (sizeof(K) == 4) {
      draw<int32_t>(words, generator, Words64{0xffffffffu, std::numeric_limits<int32_t>::min()});
    } else {
      draw<int64_t>(words, generator, Words64{~uint64_t{0}, std::numeric_limits<int64_t>::min()});
    }
    for_each(device, n, KeepLowBits<K>{keys, bits >= 8 * static_cast<int>(sizeof(K)) ? ~K(0) : (K(1) << bits) - 1});
    const Buffer kept = buffer(n * static_cast<int64_t>(sizeof(K)), device);
    MICA_CUDA(cudaMemcpyAsync(kept->data(), keys, static_cast<size_t>(n) * sizeof(K), cudaMemcpyDeviceToDevice,
                              current_stream(device)));
    const Buffer order = sort_keys(keys, nullptr, 1, n, device);
    auto* const places = static_cast<uint32_t*>(order->data());
    for_each(
        device, n - 1,
        ShuffleEqual<K>{static_cast<const K*>(kept->data()), places, n, take(generator, static_cast<uint64_t>(n))});
    visit_real("randperm", out.dtype, [&]<class T>(Tag<T>) {
      for_each(device, n, WriteOrder<T>{out.ptr<T>(), places});
    });
  };
  if (bits <= 32) return permute(uint32_t{}, DType::Int32);
  permute(uint64_t{}, DType::Int64);
}

void random_multinomial(const TensorView& out, const TensorView& weights, bool replacement, Generator generator) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  const int64_t samples = out.sizes[1], categories = weights.sizes[1];
  MICA_CHECK(categories > 0, "multinomial: cannot sample from a distribution of no categories");
  static constexpr const char* kInvalid = "probability tensor contains either `inf`, `nan` or element < 0";
  static constexpr const char* kNone = "invalid multinomial distribution (sum of probabilities <= 0)";
  const Buffer memory = buffer(weights.numel * element_size(weights.dtype), device);
  TensorView scores = weights;
  scores.data = memory->data();
  if (replacement && samples > 1) {
    cumsum(scores, weights, 1);
    const int64_t rounds = (std::max<int64_t>(out.sizes[0], 1) - 1) / kMostRows + 1;
    const PhiloxPlace place = take(generator, static_cast<uint64_t>(rounds) * 4);
    return visit_floating("multinomial", weights.dtype, [&]<class T>(Tag<T>) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
        for_each(device, out.numel,
                 LookUp<T>{scores.ptr<const T>(), out.ptr<int64_t>(), categories, samples, place,
                           Bounds::of(kNone, device)});
      } else {
        unsupported_dtype("multinomial with replacement", weights.dtype);
      }
    });
  }
  random_exponential(scores, 1, generator);
  visit_floating("multinomial", weights.dtype, [&]<class T>(Tag<T>) {
    for_each(device, weights.numel,
             Score<T>{weights.ptr<const T>(), scores.ptr<const T>(), scores.ptr<T>(), Bounds::of(kInvalid, device)});
  });
  const Buffer best = buffer(out.numel * element_size(weights.dtype), device);
  TensorView values = out;
  values.data = best->data();
  values.dtype = weights.dtype;
  topk(values, out, scores, samples, 1, true, true);
}

}  // namespace mica::cuda
