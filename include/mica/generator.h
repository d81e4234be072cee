// A source of random numbers: a shared handle, so that copies of a Generator draw from one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace mica {

// What a device's generator does. Every member but `mutex` is to be called with the mutex held, by whoever draws.
class GeneratorImpl {
 public:
  virtual ~GeneratorImpl() = default;

  virtual void manual_seed(uint64_t seed) = 0;
  virtual uint64_t initial_seed() const = 0;
  virtual std::vector<uint8_t> get_state() const = 0;
  virtual void set_state(const uint8_t* bytes, size_t size) = 0;
  virtual uint64_t get_offset() const = 0;
  virtual void set_offset(uint64_t offset) = 0;
  virtual std::shared_ptr<GeneratorImpl> clone() const = 0;
  virtual uint32_t random() = 0;
  virtual uint64_t random64() = 0;

  std::mutex mutex;
};

class Generator {
 public:
  // The seed of a generator that was given none: torch's.
  static constexpr uint64_t kDefaultSeed = 67280421310721;

  Generator();  // a new CPU generator
  explicit Generator(uint64_t seed);
  explicit Generator(std::shared_ptr<GeneratorImpl> impl) : impl_(std::move(impl)) {}

  Generator& manual_seed(uint64_t seed);
  uint64_t seed();  // seeds from the system's entropy; returns the seed
  uint64_t initial_seed() const;

  // The stream's whole state, as bytes that torch's generator of the same device reads and writes too.
  std::vector<uint8_t> get_state() const;
  void set_state(const uint8_t* bytes, size_t size);
  uint64_t get_offset() const;
  void set_offset(uint64_t offset);

  Generator clone() const;  // an independent generator in the same state

  uint32_t random();
  uint64_t random64();

  std::mutex& mutex() const { return impl_->mutex; }
  GeneratorImpl& impl() const { return *impl_; }
  bool operator==(const Generator& other) const { return impl_ == other.impl_; }  // the same stream

 private:
  std::shared_ptr<GeneratorImpl> impl_;
};

// The CPU's generator for calls that name none. Seeded from the system's entropy when the process first uses it.
Generator& default_generator();

}  // namespace mica
