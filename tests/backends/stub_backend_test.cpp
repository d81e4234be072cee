// The seam of backends, seen from C++ with a backend that the core knows nothing of: tests/backends/stub.
#include <gtest/gtest.h>

#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/ops.h"

namespace mica {
namespace {

const std::string kLibraries = MICA_STUB_DIRECTORY;

class StubBackend : public testing::Test {
 protected:
  static void SetUpTestSuite() { open_backend(kLibraries + "/libmica_stub.so"); }
  Device device{"stub"};

  Tensor on_stub(Tensor t) { return t.to(TensorOptions(device)); }
  static Tensor numbers(IntArrayRef sizes, double start = 0) {
    return arange(Scalar(start), Scalar(start + static_cast<double>(count(sizes))), Scalar(1),
                  TensorOptions(DType::Float32))
        .view(sizes);
  }
  static int64_t count(IntArrayRef sizes) {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  static void expect_equal(const Tensor& stub, const Tensor& cpu) {
    ASSERT_EQ(stub.device().type(), Device("stub").type());
    EXPECT_TRUE(equal(stub.cpu(), cpu));
  }
};

template <class F>
Error error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorKind::Runtime, "");
}
bool contains(std::string_view message, std::string_view words) {
  return message.find(words) != std::string_view::npos;
}

TEST_F(StubBackend, ADeviceOfItsOwn) {
  EXPECT_EQ(device.str(), "stub");
  EXPECT_TRUE(backend_available(device.type()));
  EXPECT_EQ(device_count(device.type()), 2);
  EXPECT_EQ(with_index(device).str(), "stub:0");
  const Error e = error_of([] { with_index(Device("stub:2")); });
  EXPECT_PRED2(contains, e.what(), "invalid device ordinal: stub:2");
}

TEST_F(StubBackend, TensorsAreMadeOnItAndMoved) {
  const Tensor x = numbers({2, 3});
  const Tensor y = on_stub(x);
  EXPECT_EQ(y.device().str(), "stub:0");
  expect_equal(y, x);
  EXPECT_TRUE(y.to(TensorOptions(device)).is_same(y)) << "the device without an index is the one it is on";
  expect_equal(y.t(), x.t());
  expect_equal(on_stub(x.t()), x.t());
  expect_equal(y.to(DType::Float64), x.to(DType::Float64));
  expect_equal(full({2, 2}, 7.0, TensorOptions(DType::Float32).device(device)),
               full({2, 2}, 7.0, TensorOptions(DType::Float32)));
  EXPECT_EQ(y.select(0, 1).select(0, 2).item().to_double(), 5.0);
  EXPECT_EQ(empty({0, 3}, TensorOptions(DType::Float32).device(device)).cpu().sizes(), IntArrayRef({0, 3}));
}

TEST_F(StubBackend, DevicesOfOneTypeAreApart) {
  const Tensor x = numbers({3});
  const Tensor first = x.to(TensorOptions(Device("stub:0"))), second = x.to(TensorOptions(Device("stub:1")));
  EXPECT_EQ(second.device().str(), "stub:1");
  const Error e = error_of([&] { add(first, second); });
  EXPECT_PRED2(contains, e.what(),
               "Expected all tensors to be on the same device, but found at least two devices, stub:0 and stub:1!");
  expect_equal(first + second.to(TensorOptions(Device("stub:0"))), x + x);
  backend(device.type()).set_device(1);
  EXPECT_EQ(empty({1}, TensorOptions(device)).device().str(), "stub:1");
  backend(device.type()).set_device(0);
}

TEST_F(StubBackend, Arithmetic) {
  const Tensor x = numbers({2, 3}), row = numbers({3}, 10);
  expect_equal(on_stub(x) + on_stub(row), x + row);
  expect_equal(on_stub(x) * on_stub(row), x * row);
  expect_equal(on_stub(x) + 2, x + 2);
  expect_equal(on_stub(x) * 0.5, x * 0.5);
  expect_equal(on_stub(x).sum(), x.sum());
  expect_equal(on_stub(x).sum(0), x.sum(0));
  expect_equal(on_stub(x).t().sum(1, true), x.t().sum(1, true));
  expect_equal(on_stub(x).mm(on_stub(x).t()), x.mm(x.t()));
  Tensor y = on_stub(x);
  y.add_(on_stub(row)).mul_(2);
  expect_equal(y, (x + row) * 2);
}

TEST_F(StubBackend, AZeroDimensionalCpuTensorMeetsTensorsOfTheDevice) {
  const Tensor x = numbers({2, 3}), number = full({}, 3.0, TensorOptions(DType::Float32));
  expect_equal(on_stub(x) * number, x * 3);
  expect_equal(number + on_stub(x), x + 3);
  const Error e = error_of([&] { add(on_stub(x), x); });
  EXPECT_PRED2(contains, e.what(), "found at least two devices, stub:0 and cpu!");
}

TEST_F(StubBackend, Gradients) {
  auto gradients = [&](bool stub) {
    const Tensor a = (stub ? on_stub(numbers({2, 3})) : numbers({2, 3})).requires_grad_();
    const Tensor b = (stub ? on_stub(numbers({3, 2}, 1)) : numbers({3, 2}, 1)).requires_grad_();
    const Tensor c = full({}, 2.0, TensorOptions(DType::Float32)).requires_grad_();
    const Tensor y = (a.mm(b) * c + a.sum()) * a.mm(b);
    y.sum().backward();
    EXPECT_TRUE(c.grad().is_cpu());
    return std::vector<Tensor>{a.grad().cpu(), b.grad().cpu(), c.grad()};
  };
  const auto here = gradients(false), there = gradients(true);
  for (size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(equal(here[i], there[i])) << i;
}

TEST_F(StubBackend, AnOperationWithoutAKernelNamesItselfAndTheDevice) {
  const Error e = error_of([&] { on_stub(numbers({3})).exp(); });
  EXPECT_EQ(e.kind(), ErrorKind::NotImplemented);
  EXPECT_PRED2(contains, e.what(), "Could not run 'exp' on 'stub:0'");
  const Error dtype = error_of([&] { on_stub(numbers({3})).to(DType::Float16); });
  EXPECT_PRED2(contains, dtype.what(), "not implemented for 'Half'");
  const Error random = error_of([&] { on_stub(numbers({3})).uniform_(); });
  EXPECT_EQ(random.kind(), ErrorKind::NotImplemented);
}

TEST_F(StubBackend, MemoryIsGivenBack) {
  const Backend& b = backend(device.type());
  const int64_t before = b.memory_stats(0).allocated;
  {
    const Tensor x = on_stub(numbers({1000}));
    EXPECT_EQ(b.memory_stats(0).allocated, before + 4000);
  }
  EXPECT_EQ(b.memory_stats(0).allocated, before);
  const Error e = error_of([&] { MICA_HOOK(b, new_stream)(0, 0); });
  EXPECT_PRED2(contains, e.what(), "the backend 'stub' does not implement 'new_stream'");
}

TEST(OpenBackend, RefusesWhatDoesNotFit) {
  const Error version = error_of([] { open_backend(kLibraries + "/libmica_stub_of_another_version.so"); });
  EXPECT_PRED2(contains, version.what(), "was built for another version of Mica");
  const Error other = error_of([] { open_backend(kLibraries + "/libmica_no_backend.so"); });
  EXPECT_PRED2(contains, other.what(), "is not a backend: it does not export mica_backend()");
  EXPECT_THROW(open_backend(kLibraries + "/absent.so"), Error);
}

}  // namespace
}  // namespace mica
