// What follows products of one row in their kernel (vector.cu): the loops that known_tail() finds, as code. A loop that
// blocks followed by instructions made a product of 2048 x 11264 take 18.8 us instead of 14.7 (H200).
//
// What a loop needs besides the products is asked for as soon as the kernels before this one have ended (Beside), so
// that it is there with the products. Each lane has one column.
#pragma once

#include "backends/cuda/bounds.h"
#include "backends/cuda/element.cuh"
#include "backends/cuda/fetch.cuh"
#include "backends/cuda/pointwise/functions.cuh"

namespace mica::cuda {

// Asks for a number here, and not where it is needed.
template <class T>
__device__ T read_here(const T* from) {
  static_assert(sizeof(T) == 2);
  unsigned short bits;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(from));
  T number;
  memcpy(&number, &bits, sizeof(number));
  return number;
}

struct NoTail {
  struct Beside {
    __device__ void ask(const NoTail&, int, int) {}
  };
};

// The sum of the result and a row.
template <class T>
struct SumTail {
  const T* row;
  T* out;

  struct Beside {
    T other;
    __device__ void ask(const SumTail& tail, int, int column) { other = read_here(tail.row + column); }
  };
  __device__ void finish(const Beside& beside, int column, float value) const {
    out[column] = convert<T>(value + convert<float>(beside.other));
  }
};

// silu of the result, or silu(a) * b of two.
template <class T>
struct SiluTail {
  T* out;

  struct Beside {
    __device__ void ask(const SiluTail&, int, int) {}
  };
  __device__ void finish(int column, float value) const { out[column] = convert<T>(Silu<float>{}(value)); }
  __device__ void finish(int column, float value, float factor) const {
    const T silu = convert<T>(Silu<float>{}(value));
    out[column] = convert<T>(convert<float>(silu) * factor);
  }
};

// Heads that are stored apart, perhaps at a place that an index names, and perhaps with their positions rotated: then a
// head has two halves, (a, b), and becomes (a * cos - b * sin, b * cos + a * sin).
template <class T>
struct HeadsTail {
  struct Part {  // a half of each head, or all of it
    T* out;      // null: nothing follows the product
    const int64_t* index;
    const T *cos, *sin;
  };
  struct Product {
    Part parts[2];
    int width, rotated;           // columns of a part; whether there are two
    int64_t pitch, step, places;  // elements from head to head, from place to place; the number of places
    int dim;                      // of the places
  };
  Product products[kFusedProducts];
  Bounds bounds;

  struct Place {  // of a column
    int head, part, at;
    __device__ Place(const Product& p, int column) {
      const int number = column / p.width;
      head = p.rotated ? number / 2 : number, part = p.rotated ? number % 2 : 0, at = column - number * p.width;
    }
  };

  // Its registers are missing while the products are computed, so that it keeps little.
  struct Beside {
    T cos, sin;
    __device__ void ask(const HeadsTail& tail, int product, int column) {
      const Product& p = tail.products[product];
      const Place place(p, column);
      const Part& part = p.parts[place.part];
      if (p.rotated) cos = read_here(part.cos + place.at), sin = read_here(part.sin + place.at);
      if (part.index) prefetch(part.index);
    }
  };
  // `other`: the result of the same column of the other half.
  __device__ void finish(const Beside& beside, int product, int column, float value, float other) const {
    const Product& p = products[product];
    const Place place(p, column);
    const Part& part = p.parts[place.part];
    if (!part.out) return;
    if (p.rotated) {
      const T a = convert<T>(value * convert<float>(beside.cos));
      const T b = convert<T>((place.part == 0 ? -other : other) * convert<float>(beside.sin));
      value = convert<float>(a) + convert<float>(b);
    }
    T* to = part.out + place.head * p.pitch + place.at;
    if (part.index) {
      const int64_t given = *part.index, at = given < 0 ? given + p.places : given;
      if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(p.places)) {
        bounds.checked(given, p.places, p.dim, true);
        return;
      }
      to += at * p.step;
    }
    *to = convert<T>(value);
  }
};

}  // namespace mica::cuda
