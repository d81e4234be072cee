// Arithmetic, reductions, and operations in place, among those that the page may name.
#include "operations.h"

namespace mica::lab {

void add_arithmetic(std::vector<Operation>& t) {
  using Type = Parameter::Type;
  using List = std::vector<Tensor>;
  const Parameter dim{"dim", Type::Integer, 0}, value{"value", Type::Number, 2};
  const Parameter keepdim{"keepdim", Type::Boolean, false};
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
}

}  // namespace mica::lab
