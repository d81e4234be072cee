// The stride explorer: any geometry over a tape of memory, and what view operations make of it.
#include <set>

#include "instruments.h"
#include "mica/inspect.h"
#include "operations.h"

namespace mica::lab {

namespace {

// A tensor of any geometry, within its storage or not: on the meta device, where numbers are all there is.
Tensor bare_geometry(const DimVector& sizes, const DimVector& strides, int64_t offset, int64_t elements, DType dtype) {
  const Device meta{DeviceType::Meta};
  Storage storage = StorageImpl::allocate(static_cast<size_t>(elements * element_size(dtype)), meta);
  return Tensor::adopt(TensorImpl::create(std::move(storage), dtype, meta, sizes, strides, offset));
}

int64_t argument(const Json& step, const char* key, int64_t otherwise) {
  const auto found = step.find(key);
  return found == step.end() || found->is_null() ? otherwise : found->get<int64_t>();
}

Tensor apply(const Tensor& t, const Json& step, std::string& python) {
  const std::string op = step.at("op").get<std::string>();
  const int64_t dim = argument(step, "dim", 0);
  if (op == "transpose") {
    const int64_t a = argument(step, "dim0", 0), b = argument(step, "dim1", 1);
    python = t.dim() == 2 ? "x.t()" : cat("x.transpose(", a, ", ", b, ")");
    return t.transpose(a, b);
  }
  if (op == "slice") {
    const int64_t start = argument(step, "start", 0), stop = argument(step, "stop", t.size(dim)),
                  by = argument(step, "step", 1);
    python = cat("x.slice: dimension ", dim, " [", start, ":", stop, ":", by, "]");
    return mica::slice(t, dim, start, stop, by);
  }
  if (op == "reverse") {
    python = cat("x.flip as a view: dimension ", dim, " [::-1]");
    return mica::slice(t, dim, std::nullopt, std::nullopt, -1);
  }
  if (op == "select") {
    const int64_t index = argument(step, "index", 0);
    python = cat("x.select(", dim, ", ", index, ")");
    return t.select(dim, index);
  }
  if (op == "unsqueeze") {
    python = cat("x.unsqueeze(", dim, ")");
    return t.unsqueeze(dim);
  }
  if (op == "expand") {
    const DimVector wide = dims(step.at("shape"), "expand");
    python = "x.expand" + tuple(wide);
    return t.expand(wide);
  }
  if (op == "view") {
    const DimVector shape = dims(step.at("shape"), "view");
    python = "x.view" + tuple(shape);
    return t.view(shape);
  }
  if (op == "row-major" || op == "column-major" || op == "channels_last") {
    // The same shape laid out afresh, from the beginning of a tape.
    const TensorOptions options = TensorOptions(t.dtype()).device(Device{DeviceType::Meta});
    if (op == "channels_last") {
      MICA_CHECK(t.dim() == 4, "required rank 4 tensor to use channels_last format");
      python = "x.contiguous(memory_format=mica.channels_last)";
      return mica::empty(t.sizes(), options).contiguous(MemoryFormat::ChannelsLast);
    }
    if (op == "row-major") {
      python = "x.contiguous()";
      return mica::empty(t.sizes(), options);
    }
    python = "x.mT.contiguous().mT";
    DimVector backwards(t.sizes()), order;
    std::reverse(backwards.begin(), backwards.end());
    for (int64_t d = t.dim(); d-- > 0;) order.push_back(d);
    return mica::empty(backwards, options).permute(order);
  }
  fail(ErrorKind::Value, cat("the explorer has no operation '", op, "'"));
}

}  // namespace

Json strides(const Json& question) {
  DimVector shape = dims(question.at("shape"), "shape");
  DimVector steps = dims(question.at("strides"), "strides");
  int64_t offset = question.at("offset").get<int64_t>();
  const int64_t elements = question.at("elements").get<int64_t>();
  const DType dtype = dtype_named(question.value("dtype", "float32"));
  MICA_CHECK(shape.size() == steps.size(), "mismatch in length of strides and shape: ", steps.size(), " and ",
             shape.size());
  MICA_CHECK(elements >= 1 && elements <= 256, "the tape has 1 to 256 elements, not ", elements);
  auto check = [](const DimVector& sizes) {
    int64_t numel = 1;
    for (const int64_t n : sizes) {
      MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", sizes.ref());
      numel *= n;
      MICA_CHECK(numel <= kMostShown, "the explorer draws at most ", kMostShown, " elements; shape ", sizes.ref(),
                 " has more");
    }
  };
  check(shape);
  std::string python;
  if (question.contains("apply")) {
    const Tensor made = apply(bare_geometry(shape, steps, offset, elements, dtype), question.at("apply"), python);
    shape = DimVector(made.sizes());
    steps = DimVector(made.strides());
    offset = made.storage_offset();
    check(shape);
  }
  const inspect::Reach r = inspect::reach(shape, steps, offset);
  int64_t numel = 1;
  for (const int64_t n : shape) numel *= n;
  const bool inside = numel == 0 || (r.lowest >= 0 && r.highest < elements);
  const int64_t width = element_size(dtype);
  const std::string geometry = cat(tuple(shape), ", ", tuple(steps), ", ", offset);
  auto braces = [](const DimVector& v) {
    std::string s = tuple(v);
    if (s.ends_with(",)")) s.erase(s.size() - 2, 1);
    s.front() = '{';
    s.back() = '}';
    return s;
  };
  const std::string type = name(dtype);
  const Tensor memory = mica::arange(elements).to(dtype);
  const std::string tape = dtype == DType::Bool ? cat("arange(", elements, ").to(") : cat("arange(", elements, ", ");
  std::set<int64_t> inner, outer;
  Json addresses = places(shape, steps, offset);
  for (Json& place : addresses) {
    const auto at = place.get<int64_t>();
    (at >= 0 && at < elements ? inner : outer).insert(at);
    place = at * width;
  }
  Json answer = {{"shape", integers(shape)},
                 {"strides", integers(steps)},
                 {"offset", offset},
                 {"numel", numel},
                 {"places", places(shape, steps, offset)},
                 {"addresses", addresses},
                 {"lowest", r.lowest},
                 {"highest", r.highest},
                 {"distinct", r.distinct},
                 {"reached", inner.size()},
                 {"outside", outer.size()},
                 {"tape", first_values(memory)},
                 {"overlaps", r.distinct < numel},
                 {"inside", inside},
                 {"element_size", width},
                 {"bytes", numel * width},
                 {"storage_bytes", elements * width},
                 {"reached_bytes", r.distinct * width},
                 {"formats", contiguity_json(shape, steps)},
                 {"operation", python},
                 {"python", cat("mica.", tape, dtype == DType::Bool ? "" : "dtype=", "mica.", type, ").as_strided(",
                                geometry, ")")},
                 {"cpp", cat("mica::", tape, "mica::", cpp_dtype(type), ").as_strided(", braces(shape), ", ",
                             braces(steps), ", ", offset, ")")}};
  // What the engine says of the same call on real memory: the refusal, in its words, of a geometry out of range.
  try {
    NoGradGuard below;
    const Tensor real = memory.as_strided(shape, steps, offset);
    answer["values"] = first_values(real);
  } catch (const Error& e) {
    answer["refused"] = e.what();
  }
  return answer;
}

}  // namespace mica::lab
