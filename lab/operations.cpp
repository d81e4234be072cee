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

std::vector<Operation> table() {
  const Parameter shape{"shape", Type::Integers, Json::array({3, 4})};
  const Parameter dim{"dim", Type::Integer, 0};
  const Parameter value{"value", Type::Number, 2};
  const Parameter keepdim{"keepdim", Type::Boolean, false};
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
  // ---- arithmetic
  t.push_back({"add", Kind::Math, 2, {}, [](const List& x, const Values&) { return x[0].add(x[1]); }, "{x} + {y}"});
  t.push_back({"sub", Kind::Math, 2, {}, [](const List& x, const Values&) { return x[0].sub(x[1]); }, "{x} - {y}"});
  t.push_back({"mul", Kind::Math, 2, {}, [](const List& x, const Values&) { return x[0].mul(x[1]); }, "{x} * {y}"});
  t.push_back({"div", Kind::Math, 2, {}, [](const List& x, const Values&) { return x[0].div(x[1]); }, "{x} / {y}"});
  t.push_back({"matmul",
               Kind::Math,
               2,
               {},
               [](const List& x, const Values&) { return x[0].matmul(x[1]); },
               "{x} @ {y}",
               "{x}.matmul({y})"});
  t.push_back({"add number",
               Kind::Math,
               1,
               {value},
               [](const List& x, const Values& v) { return x[0].add(v.scalar("value")); },
               "{x} + {value}"});
  t.push_back({"mul number",
               Kind::Math,
               1,
               {value},
               [](const List& x, const Values& v) { return x[0].mul(v.scalar("value")); },
               "{x} * {value}"});
  t.push_back({"pow",
               Kind::Math,
               1,
               {value},
               [](const List& x, const Values& v) { return x[0].pow(v.scalar("value")); },
               "{x} ** {value}",
               "{x}.pow({value})"});
  for (auto [name, call, python] :
       std::initializer_list<std::tuple<const char*, Tensor (*)(const List&, const Values&), const char*>>{
           {"neg", [](const List&x, const Values&) { return x[0].neg(); }, "{x}.neg()"},
           {"abs", [](const List&x, const Values&) { return x[0].abs(); }, "{x}.abs()"},
           {"exp", [](const List&x, const Values&) { return x[0].exp(); }, "{x}.exp()"},
           {"log", [](const List&x, const Values&) { return x[0].log(); }, "{x}.log()"},
           {"sqrt", [](const List&x, const Values&) { return x[0].sqrt(); }, "{x}.sqrt()"},
           {"sin", [](const List&x, const Values&) { return x[0].sin(); }, "{x}.sin()"},
           {"tanh", [](const List&x, const Values&) { return x[0].tanh(); }, "{x}.tanh()"},
           {"sigmoid", [](const List&x, const Values&) { return x[0].sigmoid(); }, "{x}.sigmoid()"},
           {"relu", [](const List&x, const Values&) { return x[0].relu(); }, "{x}.relu()"},
           {"round", [](const List&x, const Values&) { return x[0].round(); }, "{x}.round()"}})
    t.push_back({name, Kind::Math, 1, {}, call, python});
  t.push_back({"softmax",
               Kind::Math,
               1,
               {{"dim", Type::Integer, -1}},
               [](const List& x, const Values& v) { return x[0].softmax(v.integer("dim")); },
               "{x}.softmax({dim})"});
  t.push_back({"cumsum",
               Kind::Math,
               1,
               {dim},
               [](const List& x, const Values& v) { return x[0].cumsum(v.integer("dim")); },
               "{x}.cumsum({dim})"});
  // ---- reductions
  t.push_back({"sum", Kind::Reduce, 1, {}, [](const List& x, const Values&) { return x[0].sum(); }, "{x}.sum()"});
  t.push_back({"sum over",
               Kind::Reduce,
               1,
               {dim, keepdim},
               [](const List& x, const Values& v) { return x[0].sum({v.integer("dim")}, v.boolean("keepdim")); },
               "{x}.sum({dim}, keepdim={keepdim})",
               "{x}.sum({dim}, {keepdim})"});
  t.push_back({"mean", Kind::Reduce, 1, {}, [](const List& x, const Values&) { return x[0].mean(); }, "{x}.mean()"});
  t.push_back({"mean over",
               Kind::Reduce,
               1,
               {dim, keepdim},
               [](const List& x, const Values& v) { return x[0].mean({v.integer("dim")}, v.boolean("keepdim")); },
               "{x}.mean({dim}, keepdim={keepdim})",
               "{x}.mean({dim}, {keepdim})"});
  t.push_back({"amax",
               Kind::Reduce,
               1,
               {dim, keepdim},
               [](const List& x, const Values& v) { return x[0].amax({v.integer("dim")}, v.boolean("keepdim")); },
               "{x}.amax({dim}, keepdim={keepdim})",
               "{x}.amax({dim}, {keepdim})"});
  t.push_back({"argmax",
               Kind::Reduce,
               1,
               {dim},
               [](const List& x, const Values& v) { return x[0].argmax(v.integer("dim")); },
               "{x}.argmax({dim})"});
  // ---- in place
  t.push_back({"add_",
               Kind::InPlace,
               1,
               {value},
               [](const List& x, const Values& v) { return Tensor(x[0].add_(v.scalar("value"))); },
               "{x}.add_({value})"});
  t.push_back({"mul_",
               Kind::InPlace,
               1,
               {value},
               [](const List& x, const Values& v) { return Tensor(x[0].mul_(v.scalar("value"))); },
               "{x}.mul_({value})"});
  t.push_back({"fill_",
               Kind::InPlace,
               1,
               {value},
               [](const List& x, const Values& v) { return Tensor(x[0].fill_(v.scalar("value"))); },
               "{x}.fill_({value})"});
  t.push_back({"relu_",
               Kind::InPlace,
               1,
               {},
               [](const List& x, const Values&) { return Tensor(x[0].relu_()); },
               "{x}.relu_()"});
  t.push_back({"copy_",
               Kind::InPlace,
               2,
               {},
               [](const List& x, const Values&) { return Tensor(x[0].copy_(x[1])); },
               "{x}.copy_({y})"});
  t.push_back({"requires_grad_",
               Kind::InPlace,
               1,
               {},
               [](const List& x, const Values&) { return Tensor(x[0].requires_grad_()); },
               "{x}.requires_grad_()"});
  return t;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = table();
  return all;
}

}  // namespace mica::lab
