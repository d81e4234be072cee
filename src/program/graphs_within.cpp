// Operators whose arguments are graphs (torch.ops.higher_order): branches, loops, parts under autocast.
#include "mica/autocast.h"
#include "mica/error.h"
#include "mica/ops.h"
#include "program/call.h"

namespace mica::program {

namespace {

bool truth(const std::vector<Value>& values) {
  MICA_CHECK(!values.empty(), "a branch of the program has no condition");
  if (const auto* tensor = std::get_if<Tensor>(&values[0])) return tensor->item().to<double>() != 0;
  if (const auto* yes = std::get_if<bool>(&values[0])) return *yes;
  fail("the condition of a branch of the program is neither a bool nor a tensor");
}

void branch(Call& c) {
  const bool first = truth(c.values(0));
  c.give_values(run(c.graph(first ? 1 : 2), c.values_from(3), c.moved_to()));
}

void loop(Call& c) {
  std::vector<Value> carried = c.values(2), more = c.values_from(3);
  const size_t count = carried.size();
  for (;;) {
    std::vector<Value> given = carried;
    given.insert(given.end(), more.begin(), more.end());
    if (!truth(run(c.graph(0), given, c.moved_to()))) break;
    carried = run(c.graph(1), std::move(given), c.moved_to());
    MICA_CHECK(carried.size() == count, "a loop of the program carries ", count, " values and returns ",
               carried.size());
  }
  c.give_values(std::move(carried));
}

// Given i, the i-th rows of tensors, then values that stay the same.
std::vector<Value> with_rows(std::vector<Value> first, const std::vector<Value>& xs, int64_t i,
                             const std::vector<Value>& more) {
  for (const Value& x : xs) first.emplace_back(std::get<Tensor>(x).select(0, i));
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// How many rows the tensors have along which a map or a scan goes.
int64_t row_count(const std::vector<Value>& xs) {
  int64_t count = 0;
  for (const Value& x : xs) {
    const auto* const tensor = std::get_if<Tensor>(&x);
    MICA_CHECK(tensor && tensor->dim() > 0, "a map or scan of the program goes along a value without dimensions");
    MICA_CHECK(&x == &xs[0] || tensor->size(0) == count, "a map or scan of the program goes along tensors of ", count,
               " and of ", tensor->size(0), " rows");
    count = tensor->size(0);
  }
  MICA_CHECK(count > 0, "a map or scan of the program goes along a size of 0");
  return count;
}

// Results of one run after the other, by their places.
class Stacks {
 public:
  void add(const std::vector<Value>& results, size_t first) {
    MICA_CHECK(results.size() >= first && (columns_.empty() || columns_.size() == results.size() - first),
               "a step of a map or scan of the program returns ", results.size(), " values");
    columns_.resize(results.size() - first);
    for (size_t i = first; i < results.size(); ++i) {
      const auto* const tensor = std::get_if<Tensor>(&results[i]);
      MICA_CHECK(tensor, "a step of a map or scan of the program returns a value that is not a tensor");
      columns_[i - first].push_back(*tensor);
    }
  }
  std::vector<Value> take(std::vector<Value> behind) const {
    for (const auto& column : columns_) behind.emplace_back(mica::stack(column));
    return behind;
  }

 private:
  std::vector<std::vector<Tensor>> columns_;
};

void mapped(Call& c) {
  const std::vector<Value> xs = c.values(1), more = c.values_from(2);
  Stacks made;
  for (int64_t i = 0, count = row_count(xs); i < count; ++i)
    made.add(run(c.graph(0), with_rows({}, xs, i, more), c.moved_to()), 0);
  c.give_values(made.take({}));
}

void scanned(Call& c) {
  std::vector<Value> carried = c.values(1);
  const std::vector<Value> xs = c.values(2), more = c.values_from(3);
  Stacks made;
  for (int64_t i = 0, count = row_count(xs); i < count; ++i) {
    const size_t carries = carried.size();
    std::vector<Value> results = run(c.graph(0), with_rows(std::move(carried), xs, i, more), c.moved_to());
    made.add(results, carries);
    results.resize(carries);
    carried = std::move(results);
  }
  c.give_values(made.take(std::move(carried)));
}

// A copy with the strides and the place in its memory that the tensor has: views are made of it by both.
void copied_with_strides(Call& c) {
  const std::vector<Value> given = c.values(0);
  MICA_CHECK(given.size() == 1 && std::holds_alternative<Tensor>(given[0]),
             "an operator of the program changes a value that is not a tensor");
  const Tensor& self = std::get<Tensor>(given[0]);
  if (self.numel() == 0 || (self.storage_offset() == 0 && self.is_contiguous())) return c.give(self.clone());
  int64_t length = self.storage_offset() + 1;
  for (int64_t d = 0; d < self.dim(); ++d) length += (self.size(d) - 1) * self.stride(d);
  const Tensor memory = self.as_strided({length}, {1}, 0).clone();
  c.give(memory.as_strided(self.sizes(), self.strides(), self.storage_offset()));
}

void with_or_without_gradients(Call& c) { c.give_values(run(c.graph(1), c.values_from(2), c.moved_to())); }

// A part of the program that was written under autocast: a device, a dtype, whether it is on, and a cache.
void with_autocast(Call& c) {
  const Graph& graph = c.graph(4);  // so that there are as many arguments
  const DeviceType type = c.moved_to() ? c.moved_to()->type() : Device(c.text(0)).type();
  const autocast::Guard guard(type, c.dtype_if(1), c.boolean(2));
  c.give_values(run(graph, c.values_from(5), c.moved_to()));
}

// Their arguments have no declared types.
const Operator kOperatorsOfGraphs[] = {
    {"higher_order.cond() -> ()", branch},
    {"higher_order.while_loop() -> ()", loop},
    {"higher_order.map_impl() -> ()", mapped},
    {"higher_order.scan() -> ()", scanned},
    {"higher_order.copy_with_strides() -> ()", copied_with_strides},  // of auto_functionalized_v2
    {"higher_order.wrap_with_set_grad_enabled() -> ()", with_or_without_gradients},
    {"higher_order.wrap_with_autocast() -> ()", with_autocast},
};

}  // namespace

ArrayRef<Operator> operators_of_graphs() { return kOperatorsOfGraphs; }

}  // namespace mica::program
