// Which instrument answers to which name.
#include "instruments.h"
#include "mica/error.h"

namespace mica::lab {

const std::map<std::string, Instrument>& instruments() {
  static const std::map<std::string, Instrument> table = {
      {"engine", engine},
      {"fit", fit},
      {"weights_file", weights_file},
      {"calculator", calculator},
      {"strides", strides},
      {"views", views},
      {"broadcasting", broadcasting},
      {"precision", precision},
      {"bits", bits},
      {"transfer", transfer},
      {"playground", playground},
      {"graph", graph},
      {"run", run},
      {"sparse", sparse},
      {"quantize", quantize},
      {"machine", machine},
      {"roofline", roofline},
      {"plan", plan},
      {"einsum", einsum},
      {"quiz", quiz},
      {"execute", execute},
  };
  return table;
}

Reply reply(const std::string& name, const std::string& question) {
  const auto found = instruments().find(name);
  if (found == instruments().end()) return {404, "no such instrument"};
  const auto text = [](const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  try {
    return {200, text({{"ok", true}, {"value", found->second(Json::parse(question))}})};
  } catch (const Json::exception& e) {
    return {400, cat("not a question that I understand: ", e.what())};
  } catch (const Error& e) {
    return {200, text({{"ok", false}, {"error", e.what()}})};
  } catch (const std::exception& e) {
    return {500, e.what()};
  }
}

}  // namespace mica::lab
