// Which instrument answers to which name.
#include "instruments.h"

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

}  // namespace mica::lab
