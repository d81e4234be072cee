// A library that exports no mica_backend().
extern "C" int answer() { return 42; }
