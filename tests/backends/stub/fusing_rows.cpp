// Products of one row and attention of a few queries in the fusing backend. A kernel that begins early may see memory
// as it was before the kernels that still run. Here it always does, so that a plan which lets a kernel begin early
// where it must not has other bits than eager execution.
#include <cstring>
#include <unordered_map>
#include <vector>

#include "fusing.h"
#include "mica/backend/layer_backend.h"
#include "mica/error.h"

namespace fusing {

using namespace mica;

namespace {

// What has been written by kernels that may still run when the next one begins early: each byte as it was before.
struct Unseen {
  bool next_may_begin = false;
  std::unordered_map<const char*, char> bytes;

  void remember(const char* at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) bytes.emplace(at + i, at[i]);
  }
};
thread_local Unseen unseen;

int early_products = 0, early_attention = 0;

// Calls visit(bytes from the first element) for every element.
template <class Visit>
void each_element(int ndim, const int64_t* shape, const int64_t* strides, int64_t bytes, const Visit& visit) {
  int64_t count = 1;
  for (int d = 0; d < ndim; ++d) count *= shape[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0;
    for (int d = ndim - 1; d >= 0; --d) at += rest % shape[d] * strides[d] * bytes, rest /= shape[d];
    visit(at);
  }
}

void remember(const TensorView& view) {
  const int64_t bytes = element_size(view.dtype);
  each_element(view.ndim, view.sizes, view.strides, bytes,
               [&](int64_t at) { unseen.remember(static_cast<char*>(view.data) + at, bytes); });
}

// Where a loop stores an operand.
char* stored_at(const FusedLoop::Operand& o) {
  if (!o.index) return o.data;
  const int64_t place = *o.index < 0 ? *o.index + o.size : *o.index;
  return o.data + place * o.step;
}

// A view of the same strides, of elements as a kernel sees them that has begun early. Row `place` of dimension 2 was
// read later.
TensorView as_seen(const TensorView& view, std::vector<char>& memory, int64_t place = -1) {
  const int64_t bytes = element_size(view.dtype);
  int64_t end = bytes;
  for (int d = 0; d < view.ndim; ++d) end += (view.sizes[d] - 1) * view.strides[d] * bytes;
  memory.assign(static_cast<size_t>(end), 0);
  const auto* from = static_cast<const char*>(view.data);
  const int64_t pitch = view.ndim > 2 ? view.strides[2] * bytes : 0;
  int64_t last = 1;  // elements of a row
  for (int d = 3; d < view.ndim; ++d) last *= view.sizes[d];
  int64_t number = 0;
  each_element(view.ndim, view.sizes, view.strides, bytes, [&](int64_t at) {
    const bool is_late = pitch && place >= 0 && number / last % view.sizes[2] == place;
    for (int64_t i = 0; i < bytes; ++i) {
      const auto old = unseen.bytes.find(from + at + i);
      memory[static_cast<size_t>(at + i)] = is_late || old == unseen.bytes.end() ? from[at + i] : old->second;
    }
    ++number;
  });
  TensorView seen = view;
  seen.data = memory.data();
  return seen;
}

int64_t row_of(const int64_t* place, const TensorView& keys) {
  if (!place) return -1;
  return *place < 0 ? *place + keys.sizes[2] : *place;
}

}  // namespace

void note_kernel() {
  unseen.next_may_begin = false;
  unseen.bytes.clear();
}

bool takes_product(const MatmulCall& call) { return call.out.sizes[0] == 1 && call.out.sizes[1] == 1; }
bool takes_tails(const FusedProducts&) { return true; }

void run_products(const FusedProducts& products) {
  MICA_CHECK(!products.norm, "a norm that was not asked for");
  MICA_CHECK(!products.early || unseen.next_may_begin, "products begin before a kernel that does not let them");
  early_products += products.early;
  MatmulCall calls[kFusedProducts];
  std::vector<char> matrices[kFusedProducts], results[kFusedProducts];
  for (int i = 0; i < products.count; ++i) {
    MatmulCall& call = calls[i] = products.products[i];
    for (TensorView* view : {&call.out, &call.a, &call.b}) *view = on_host(*view);
    if (products.early) call.b = as_seen(call.b, matrices[i]);
    if (call.out.data) continue;
    results[i].resize(static_cast<size_t>(call.out.sizes[2] * element_size(call.out.dtype)));
    call.out.data = results[i].data();
  }
  note_kernel();
  unseen.next_may_begin = true;
  for (int i = 0; i < products.count; ++i) {
    if (products.products[i].out.data) remember(calls[i].out);
    cpu_kernels.matmul(calls[i]);
  }
  for (int t = 0; t < products.ntails; ++t) {
    const FusedTail& tail = products.tails[t];
    FusedLoop loop = *tail.loop;
    for (int k = 0; k < loop.noperands; ++k)
      if (const int j = tail.of_product[k]; j >= 0 && !products.products[j].out.data)
        loop.operands[k].data = results[j].data() + tail.column[k] * element_size(loop.operands[k].dtype);
    for (int i = 0; i < loop.ninstructions; ++i) {
      if (loop.instructions[i].code != FusedInstruction::kStore) continue;
      const FusedLoop::Operand& o = loop.operands[loop.instructions[i].operand];
      each_element(loop.ndim, loop.shape, o.strides, 1,
                   [&](int64_t at) { unseen.remember(stored_at(o) + at, element_size(o.dtype)); });
    }
    follow(loop);
  }
}

bool takes_attention(const TensorView& query, const TensorView&, const TensorView&, const TensorView&) {
  return query.sizes[2] <= 4;
}

// It lets the next kernel begin at once, so that what may still run now may run then, too.
void run_attention(const FusedAttention& a) {
  MICA_CHECK(!a.early || unseen.next_may_begin, "attention begins before a kernel that does not let it");
  early_attention += a.early;
  std::vector<char> keys, values;
  TensorView key = on_host(a.key), value = on_host(a.value);
  if (a.early) {
    key = as_seen(key, keys, row_of(a.key_place, key));
    value = as_seen(value, values, row_of(a.value_place, value));
  }
  remember(a.out), remember(a.logsumexp);
  cpu_layer_kernels.attention_forward(on_host(a.out), on_host(a.logsumexp), on_host(a.query), key, value,
                                      on_host(a.mask), a.is_causal, a.scale);
}

}  // namespace fusing

// How many kernels have begun early.
extern "C" int fusing_early_products() { return fusing::early_products; }
extern "C" int fusing_early_attention() { return fusing::early_attention; }
