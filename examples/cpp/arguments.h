// Options of a program: --steps 100 --seed 1.
#pragma once

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

class Arguments {
 public:
  // `usual` has all options with their default values.
  Arguments(int argc, char** argv, std::map<std::string, std::string> usual) : values_(std::move(usual)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string option = argv[i], name = option.starts_with("--") ? option.substr(2) : "";
      if (!values_.contains(name) || i + 1 == argc) {
        std::cerr << "usage: " << argv[0];
        for (const auto& [known, value] : values_) std::cerr << " [--" << known << " " << value << "]";
        std::cerr << "\n";
        std::exit(option == "--help" ? 0 : 2);
      }
      values_[name] = argv[i + 1];
    }
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  int64_t number(const std::string& name) const { return std::stoll(text(name)); }

 private:
  std::map<std::string, std::string> values_;
};
