#include "backends/cuda/convolution/choices.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <unordered_map>

#include "backends/cuda/cudnn/cudnn.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

// A convolution as the file names it: the words of its key in hexadecimal. Devices of one kind share their lines.
std::string name_of(const ConvolutionKey& key) {
  ConvolutionKey shared = key;
  shared.device = 0;
  uint32_t words[sizeof(ConvolutionKey) / 4];
  std::memcpy(words, &shared, sizeof words);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name;
  for (uint32_t word : words) {
    bool leading = true;
    for (int shift = 28; shift >= 0; shift -= 4) {
      const uint32_t digit = word >> shift & 15;
      leading = leading && digit == 0 && shift > 0;
      if (!leading) name += kDigits[digit];
    }
    name += '.';
  }
  return name;
}

// MICA_CACHE_DIR, or the usual folder for caches of a user; empty where there is none.
std::string folder() {
  if (const char* named = std::getenv("MICA_CACHE_DIR")) return named;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches && *caches) return std::string(caches) + "/mica";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/mica";
  return {};
}

void make_folders(const std::string& path) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    ::mkdir(path.substr(0, at).c_str(), 0700);  // fails where it is there
  }
}

// Choices of one kind of GPU. The lock of cuDNN's tables is held by whoever asks.
class Choices {
 public:
  explicit Choices(int device) {
    const std::string where = folder();
    if (where.empty()) return;
    cudaDeviceProp properties;
    MICA_CUDA(cudaGetDeviceProperties(&properties, device));
    std::string gpu = properties.name;
    for (char& c : gpu)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    folder_ = where;
    path_ = where + "/convolutions-" + std::to_string(cudnn::api().version()) + "-" + gpu + ".txt";
    std::ifstream lines(path_);
    std::string name;
    for (EngineChoice choice{}; lines >> name >> choice.engine >> choice.compared;) known_[name] = choice;
  }
  std::optional<EngineChoice> find(const ConvolutionKey& key) const {
    const auto found = known_.find(name_of(key));
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }
  // Writes a whole line to the end at once, so that lines of several processes stay whole.
  void add(const ConvolutionKey& key, EngineChoice choice) {
    const std::string name = name_of(key);
    known_[name] = choice;
    if (path_.empty()) return;
    make_folders(folder_);
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    const std::string line = name + ' ' + std::to_string(choice.engine) + ' ' + std::to_string(choice.compared) + '\n';
    if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) path_.clear();
    ::close(file);
  }

 private:
  std::string folder_, path_;
  std::unordered_map<std::string, EngineChoice> known_;
};

Choices& choices(int device) {
  static auto* by_device = new std::unordered_map<int, Choices>;
  return by_device->try_emplace(device, device).first->second;
}

}  // namespace

std::optional<EngineChoice> remembered_choice(const ConvolutionKey& key) { return choices(key.device).find(key); }
void remember_choice(const ConvolutionKey& key, EngineChoice choice) { choices(key.device).add(key, choice); }

}  // namespace mica::cuda
