#include "mica/indexing.h"
#include "operations.h"

namespace mica::lab {

namespace {

using Type = Parameter::Type;
using List = std::vector<Tensor>;

// Random numbers are the same at every answer.
Generator fixed() { return Generator(0); }

void check_size(IntArrayRef size) {
  int64_t numel = 1;
  for (const int64_t n : size) {
    MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", size);
    MICA_CHECK(!__builtin_mul_overflow(numel, n, &numel) && numel <= kMostElements, "the Lab makes tensors of at most ",
               kMostElements, " elements; ", size, " has more");
  }
}

Json devices() {
  Json list = Json::array({"cpu", "meta"});
  if (device_count(DeviceType::CUDA) > 0) list.push_back("cuda");
  return list;
}
Device device_named(const std::string& word) {
  if (word == "cuda") return Device{DeviceType::CUDA, 0};
  MICA_CHECK(word == "cpu" || word == "meta", "the Lab has no device '", word, "'");
  return Device{word == "cpu" ? DeviceType::CPU : DeviceType::Meta};
}

Tensor numbered(const DimVector& index) {
  const Tensor list = mica::empty({static_cast<int64_t>(index.size())}, TensorOptions(DType::Int64));
  std::copy(index.begin(), index.end(), list.data_ptr<int64_t>());
  return list;
}

std::vector<Operation> table() {
  const Parameter shape{"shape", Type::Integers, Json::array({3, 4})};
  const Parameter dim{"dim", Type::Integer, 0};
  const Parameter value{"value", Type::Number, 2};
  std::vector<Operation> t;
  // ---- new tensors
  t.push_back({"arange",
               Kind::Create,
               0,
               {{"end", Type::Integer, 12}},
               [](const List&, const Values& v) {
                 check_size({v.integer("end")});
                 return mica::arange(v.integer("end"), DType::Float32);
               },
               "mica.arange({end}.)",
               "arange({end}, DType::Float32)"});
  t.push_back({"zeros",
               Kind::Create,
               0,
               {shape},
               [](const List&, const Values& v) {
                 check_size(v.integers("shape"));
                 return mica::zeros(v.integers("shape"));
               },
               "mica.zeros({shape})",
               "zeros({shape})"});
  t.push_back({"ones",
               Kind::Create,
               0,
               {shape},
               [](const List&, const Values& v) {
                 check_size(v.integers("shape"));
                 return mica::ones(v.integers("shape"));
               },
               "mica.ones({shape})",
               "ones({shape})"});
  t.push_back({"full",
               Kind::Create,
               0,
               {shape, value},
               [](const List&, const Values& v) {
                 check_size(v.integers("shape"));
                 return mica::full(v.integers("shape"), v.scalar("value"));
               },
               "mica.full({shape}, {value})",
               "full({shape}, {value})"});
  t.push_back({"randn",
               Kind::Create,
               0,
               {shape},
               [](const List&, const Values& v) {
                 check_size(v.integers("shape"));
                 return mica::randn(v.integers("shape"), fixed());
               },
               "mica.randn({shape}, generator=mica.Generator().manual_seed(0))",
               "randn({shape}, Generator(0))"});
  t.push_back({"rand",
               Kind::Create,
               0,
               {shape},
               [](const List&, const Values& v) {
                 check_size(v.integers("shape"));
                 return mica::rand(v.integers("shape"), fixed());
               },
               "mica.rand({shape}, generator=mica.Generator().manual_seed(0))",
               "rand({shape}, Generator(0))"});
  t.push_back({"eye",
               Kind::Create,
               0,
               {{"n", Type::Integer, 3}},
               [](const List&, const Values& v) {
                 check_size({v.integer("n"), v.integer("n")});
                 return mica::eye(v.integer("n"));
               },
               "mica.eye({n})",
               "eye({n})"});
  t.push_back({"linspace",
               Kind::Create,
               0,
               {{"start", Type::Number, 0}, {"end", Type::Number, 1}, {"steps", Type::Integer, 5}},
               [](const List&, const Values& v) {
                 check_size({v.integer("steps")});
                 return mica::linspace(v.scalar("start"), v.scalar("end"), v.integer("steps"));
               },
               "mica.linspace({start}, {end}, {steps})",
               "linspace({start}, {end}, {steps})"});
  // ---- views
  t.push_back({"view",
               Kind::View,
               1,
               {shape},
               [](const List& x, const Values& v) { return x[0].view(v.integers("shape")); },
               "{x}.view({shape})"});
  t.push_back({"reshape",
               Kind::View,
               1,
               {shape},
               [](const List& x, const Values& v) { return x[0].reshape(v.integers("shape")); },
               "{x}.reshape({shape})"});
  t.push_back({"transpose",
               Kind::View,
               1,
               {{"dim0", Type::Integer, 0}, {"dim1", Type::Integer, 1}},
               [](const List& x, const Values& v) { return x[0].transpose(v.integer("dim0"), v.integer("dim1")); },
               "{x}.transpose({dim0}, {dim1})"});
  t.push_back({"t", Kind::View, 1, {}, [](const List& x, const Values&) { return x[0].t(); }, "{x}.t()"});
  t.push_back({"permute",
               Kind::View,
               1,
               {{"dims", Type::Integers, Json::array({1, 0})}},
               [](const List& x, const Values& v) { return x[0].permute(v.integers("dims")); },
               "{x}.permute({dims})"});
  t.push_back({"select",
               Kind::View,
               1,
               {dim, {"index", Type::Integer, 0}},
               [](const List& x, const Values& v) { return x[0].select(v.integer("dim"), v.integer("index")); },
               "{x}.select({dim}, {index})"});
  t.push_back({"narrow",
               Kind::View,
               1,
               {dim, {"start", Type::Integer, 0}, {"length", Type::Integer, 2}},
               [](const List& x, const Values& v) {
                 return x[0].narrow(v.integer("dim"), v.integer("start"), v.integer("length"));
               },
               "{x}.narrow({dim}, {start}, {length})"});
  t.push_back({"slice",
               Kind::View,
               1,
               {dim, {"start", Type::Integer, 0}, {"stop", Type::Integer, 4}, {"step", Type::Integer, 2}},
               [](const List& x, const Values& v) {
                 MICA_CHECK(v.integer("dim") >= -1, "dim is written from the front, or -1 for the last, not ",
                            v.integer("dim"));
                 return mica::slice(x[0], v.integer("dim"), v.integer("start"), v.integer("stop"), v.integer("step"));
               },
               "{x}[{colons:dim}{start}:{stop}:{step}]",
               "slice({x}, {dim}, {start}, {stop}, {step})"});
  t.push_back({"reverse",
               Kind::View,
               1,
               {},
               [](const List& x, const Values&) { return mica::slice(x[0], 0, std::nullopt, std::nullopt, -1); },
               "{x}[::-1]",
               "slice({x}, 0, std::nullopt, std::nullopt, -1)"});
  t.push_back({"unsqueeze",
               Kind::View,
               1,
               {dim},
               [](const List& x, const Values& v) { return x[0].unsqueeze(v.integer("dim")); },
               "{x}.unsqueeze({dim})"});
  t.push_back({"squeeze",
               Kind::View,
               1,
               {dim},
               [](const List& x, const Values& v) { return x[0].squeeze(v.integer("dim")); },
               "{x}.squeeze({dim})"});
  t.push_back({"expand",
               Kind::View,
               1,
               {shape},
               [](const List& x, const Values& v) {
                 Tensor wide = x[0].expand(v.integers("shape"));
                 check_size(wide.sizes());
                 return wide;
               },
               "{x}.expand({shape})"});
  t.push_back(
      {"flatten", Kind::View, 1, {}, [](const List& x, const Values&) { return x[0].flatten(); }, "{x}.flatten()"});
  t.push_back(
      {"diagonal", Kind::View, 1, {}, [](const List& x, const Values&) { return x[0].diagonal(); }, "{x}.diagonal()"});
  t.push_back({"unfold",
               Kind::View,
               1,
               {dim, {"size", Type::Integer, 2}, {"step", Type::Integer, 1}},
               [](const List& x, const Values& v) {
                 Tensor windows = x[0].unfold(v.integer("dim"), v.integer("size"), v.integer("step"));
                 check_size(windows.sizes());
                 return windows;
               },
               "{x}.unfold({dim}, {size}, {step})"});
  t.push_back({"as_strided",
               Kind::View,
               1,
               {{"size", Type::Integers, Json::array({2, 2})},
                {"stride", Type::Integers, Json::array({1, 2})},
                {"offset", Type::Integer, 0}},
               [](const List& x, const Values& v) {
                 check_size(v.integers("size"));
                 return x[0].as_strided(v.integers("size"), v.integers("stride"), v.integer("offset"));
               },
               "{x}.as_strided({size}, {stride}, {offset})"});
  t.push_back(
      {"detach", Kind::View, 1, {}, [](const List& x, const Values&) { return x[0].detach(); }, "{x}.detach()"});
  // ---- copies
  t.push_back({"clone", Kind::Copy, 1, {}, [](const List& x, const Values&) { return x[0].clone(); }, "{x}.clone()"});
  t.push_back({"contiguous",
               Kind::Copy,
               1,
               {},
               [](const List& x, const Values&) { return x[0].contiguous(); },
               "{x}.contiguous()"});
  t.push_back({"to",
               Kind::Copy,
               1,
               {{"dtype", Type::Dtype, "float16"}},
               [](const List& x, const Values& v) { return x[0].to(v.dtype("dtype")); },
               "{x}.to({dtype})"});
  t.push_back({"to device",
               Kind::Copy,
               1,
               {{"device", Type::Choice, "meta", devices()}},
               [](const List& x, const Values& v) { return x[0].to(device_named(v.word("device")), x[0].dtype()); },
               "{x}.to('{word:device}')",
               "{x}.to(Device(\"{word:device}\"))"});
  t.push_back({"channels_last",
               Kind::Copy,
               1,
               {},
               [](const List& x, const Values&) { return x[0].contiguous(MemoryFormat::ChannelsLast); },
               "{x}.contiguous(memory_format=mica.channels_last)",
               "{x}.contiguous(MemoryFormat::ChannelsLast)"});
  t.push_back({"rows",
               Kind::Copy,
               1,
               {{"index", Type::Integers, Json::array({0, 2})}},
               [](const List& x, const Values& v) { return x[0].index({numbered(v.integers("index"))}); },
               "{x}[[{list:index}]]",
               "{x}.index({tensor({{list:index}})})"});
  t.push_back({"elements",
               Kind::Copy,
               1,
               {{"rows", Type::Integers, Json::array({0, 1})}, {"columns", Type::Integers, Json::array({1, 0})}},
               [](const List& x, const Values& v) {
                 return x[0].index({numbered(v.integers("rows")), numbered(v.integers("columns"))});
               },
               "{x}[[{list:rows}], [{list:columns}]]",
               "{x}.index({tensor({{list:rows}}), tensor({{list:columns}})})"});
  t.push_back({"mask",
               Kind::Copy,
               1,
               {{"above", Type::Number, 0.5}},
               [](const List& x, const Values& v) { return x[0].index({x[0].gt(v.scalar("above"))}); },
               "{x}[{x} > {above}]",
               "{x}.index({{x}.gt({above})})"});
  t.push_back({"repeat",
               Kind::Copy,
               1,
               {{"repeats", Type::Integers, Json::array({2, 1})}},
               [](const List& x, const Values& v) {
                 const DimVector r = v.integers("repeats");
                 int64_t numel = x[0].numel();
                 for (const int64_t n : r) numel *= n;
                 check_size({numel});
                 return x[0].repeat(r);
               },
               "{x}.repeat({repeats})"});
  t.push_back({"flip",
               Kind::Copy,
               1,
               {{"dims", Type::Integers, Json::array({0})}},
               [](const List& x, const Values& v) { return x[0].flip(v.integers("dims")); },
               "{x}.flip({dims})"});
  t.push_back({"roll",
               Kind::Copy,
               1,
               {{"shifts", Type::Integers, Json::array({1})}},
               [](const List& x, const Values& v) { return x[0].roll(v.integers("shifts")); },
               "{x}.roll({shifts})"});
  t.push_back({"cat",
               Kind::Copy,
               2,
               {dim},
               [](const List& x, const Values& v) {
                 const Tensor both[] = {x[0], x[1]};
                 return mica::cat(TensorList(both, 2), v.integer("dim"));
               },
               "mica.cat([{x}, {y}], {dim})",
               "cat({{x}, {y}}, {dim})"});
  t.push_back({"stack",
               Kind::Copy,
               2,
               {dim},
               [](const List& x, const Values& v) {
                 const Tensor both[] = {x[0], x[1]};
                 return mica::stack(TensorList(both, 2), v.integer("dim"));
               },
               "mica.stack([{x}, {y}], {dim})",
               "stack({{x}, {y}}, {dim})"});
  t.push_back({"tril", Kind::Copy, 1, {}, [](const List& x, const Values&) { return x[0].tril(); }, "{x}.tril()"});
  add_arithmetic(t);
  return t;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = table();
  return all;
}

}  // namespace mica::lab
