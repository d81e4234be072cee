# Every task a developer has, on a bare Debian or Ubuntu with git, make and Python 3.11 or later.
SHELL := /bin/bash
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
PYTHON ?= python3
VENV := .venv
TORCH ?= torch==2.13.0
TORCH_VENV := .venv-torch
# An interpreter that has torch; `make test-torch TORCH_PYTHON=...` takes one that is already there.
TORCH_PYTHON ?= $(TORCH_VENV)/bin/python
PYTEST_ARGS ?=
# `make build NINJA_ARGS="-k 0"` goes on after an error.
NINJA_ARGS ?=
# CI treats warnings as errors. So does a developer who says PRESET=strict; a user's other compiler may warn.
PRESET ?= $(if $(CI),strict,release)

site_packages = $$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# Targets are made one after the other, but for the two that `build` starts at once.
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif

.PHONY: build compiled installed build-all demo test test-cpp test-python lint format test-torch torch-tests test-distributed \
        test-packages test-cuda test-x86_64 test-aarch64 bench sweep sanitize sanitize-threads fuzz compiler-fuzz wheel test-wheel nightly compile-times \
        lab-wasm test-lab-wasm site site-serve test-site clean

# The library and the extension: all that a program needs. Packages are installed while the compiler runs. Where
# PYTHONDONTWRITEBYTECODE is set, Python would compile the package's files at every import; so they are compiled here.
build: build/build.ninja
	@$(MAKE) --jobs=2 compiled installed
	@$(VENV)/bin/python -m compileall -q -j $(JOBS) python/mica build/python/mica build/generated/package

# The lock lets several shells build in one directory, one after the other.
compiled:
	@test -f build/lib/libmica.so || echo "Building Mica: 8 to 15 minutes on two cores the first time, by the machine."
	@flock build cmake --build build --parallel $(JOBS) --target mica_extension -- $(NINJA_ARGS)

# The same with the C++ tests and examples.
build-all: build build/.with_packages
	@flock build cmake --build build --parallel $(JOBS) -- $(NINJA_ARGS)

installed: $(VENV)/.installed
	@:

# The build needs the environment's interpreter, and none of its packages.
$(VENV)/bin/python:
	@scripts/install_prerequisites $(PYTHON)
	$(PYTHON) -m venv --without-pip $(VENV)

# The environment imports the package that the build directory holds, and has the `mica` command. Python compiles a module
# of a package at its first import, which spares the many that nobody imports.
$(VENV)/.installed: requirements-dev.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m ensurepip --upgrade --default-pip >/dev/null
	$(VENV)/bin/python -m pip install --quiet --no-compile --upgrade -r requirements-dev.txt
	echo $(CURDIR)/build/python > "$(site_packages)"/mica-development.pth
	printf '%s\n' '#!$(CURDIR)/$(VENV)/bin/python' 'import sys' 'from mica.cli import main' 'sys.exit(main())' \
	  > $(VENV)/bin/mica
	chmod +x $(VENV)/bin/mica
	touch $@

# The C++ tests are told of the environment's LAPACK as they are configured, which a first build is without it.
build/.with_packages: $(VENV)/.installed | build/build.ninja
	@cmake build --log-level=WARNING >/dev/null
	@touch $@

build/build.ninja: CMakePresets.json | $(VENV)/bin/python
	@scripts/install_prerequisites $(PYTHON)
	@rm -f build/CMakeCache.txt
	cmake --preset $(PRESET) -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python --log-level=WARNING
	@touch $@

# A tour of tensors, then a GPT that trains for a minute.
demo: build
	@$(VENV)/bin/mica demo
	@$(VENV)/bin/mica run examples/demo.py

test: lint test-cpp test-python

test-cpp: build-all
	ctest --test-dir build --output-on-failure

test-python: build
	@flock build cmake --build build --parallel $(JOBS) --target mica_python_tests -- $(NINJA_ARGS)
	@scripts/install_browser
	$(VENV)/bin/python -m pytest tests -n $(JOBS) -m "not torch and not cuda and not long" $(PYTEST_ARGS)

cpp_files = git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh'

lint: $(VENV)/.installed
	@if bad=$$($(cpp_files) | xargs -0r $(VENV)/bin/clang-format --dry-run 2>&1 | grep -oE '^[^: ]+:[0-9]+'); then \
	  echo "$$bad" | sort -u -t: -k1,1; echo 'These files are not formatted: make format'; exit 1; fi
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/ruff format --check --quiet

format: $(VENV)/.installed
	@$(cpp_files) | xargs -0r $(VENV)/bin/clang-format -i
	@$(VENV)/bin/ruff check --fix --quiet
	@$(VENV)/bin/ruff format --quiet

# Torch stays out of the development environment; its own interpreter borrows mica and pytest from there.
$(TORCH_VENV)/bin/python:
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet "$(TORCH)" expecttest scipy-openblas32 || { rm -rf $(TORCH_VENV); exit 1; }

test-torch: build $(TORCH_PYTHON)
	PYTHONPATH=$(CURDIR)/build/python:"$(site_packages)" $(TORCH_PYTHON) -m pytest tests -m torch $(PYTEST_ARGS)

# What takes minutes with many processes: a training whose ranks are killed at random moments, a hundred times.
test-distributed: build
	$(VENV)/bin/python -m pytest tests/distributed -m "long and not torch and not cuda" $(PYTEST_ARGS)

# Packages from PyPI on Mica and on torch, side by side; writes docs/packages.md. PACKAGES_ARGS="--only timm_models" narrows it.
PACKAGES_VENV := .venv-packages
PACKAGES_ARGS ?=
$(PACKAGES_VENV)/.installed: tests/packages/requirements.txt tests/packages/requirements-shared.txt
	$(PYTHON) -m venv $(PACKAGES_VENV)
	$(PACKAGES_VENV)/bin/python -m pip install --quiet -r tests/packages/requirements-shared.txt
	$(PACKAGES_VENV)/bin/python -m pip install --quiet --no-deps -r tests/packages/requirements.txt
	echo $(CURDIR)/build/python > "$$($(PACKAGES_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/mica-development.pth
	touch $@

test-packages: build $(TORCH_PYTHON) $(PACKAGES_VENV)/.installed
	$(PYTHON) tests/packages/run.py --mica $(PACKAGES_VENV)/bin/python --torch $(TORCH_PYTHON) --write docs/packages.md \
	  --packages "$$($(PACKAGES_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" $(PACKAGES_ARGS)

# torch's own tests on torch and on Mica: TORCH_TESTS is the folder test/ of a copy of torch's repository, which nothing here fetches.
# TORCH_TESTS_ARGS="--only test_nn nn/test_pooling" narrows it, "--every 3" samples it.
TORCH_TESTS_ARGS ?=
torch-tests: build $(TORCH_PYTHON)
	@test -d "$(TORCH_TESTS)" || { echo "say where torch's tests lie: make torch-tests TORCH_TESTS=.../pytorch/test"; exit 1; }
	PYTHONPATH="$(site_packages)" $(PYTHON) tests/torch/own_tests/run.py --tests "$(TORCH_TESTS)" --python $(TORCH_PYTHON) --mica build/python \
	  --results build/torch_tests $(TORCH_TESTS_ARGS)

test-cuda: $(VENV)/.installed
	cmake --preset release -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python -DMICA_CUDA=ON -B build-cuda
	cmake --build build-cuda --parallel $(JOBS) -- --quiet
	PYTHONPATH=$(CURDIR)/build-cuda/python $(VENV)/bin/python -m pytest tests -m cuda $(PYTEST_ARGS)

# The tests of the architecture that is not this machine's, cross-compiled and run by qemu: all in C++, and of the Python
# tests those of what differs between architectures. CROSS_TESTS="tests" runs more; it takes hours. A plugin of pytest's
# that has machine code of this machine's, hypothesis, is left out.
CROSS_TESTS ?= tests/ops tests/autograd tests/nn/test_init.py tests/nn/test_layers_recorded.py tests/nn/test_recorded_modules.py \
               tests/optim/test_steps.py
test-x86_64 test-aarch64: test-%: $(VENV)/.installed
	@test "$$(uname -m)" != $* || { echo "This machine is $*: make test"; exit 1; }
	@scripts/install_cross_tools $* build-cross/$*/sysroot
	@test -f build-cross/$*/build.ninja || cmake -S . -B build-cross/$* -G Ninja -DMICA_WERROR=ON --log-level=WARNING \
	  -DCMAKE_TOOLCHAIN_FILE=cmake/toolchains/$*.cmake -DMICA_SYSROOT=$(CURDIR)/build-cross/$*/sysroot \
	  -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python
	cmake --build build-cross/$* --parallel $(JOBS) --target mica_simd_math_tests mica_tests -- $(NINJA_ARGS)
	ctest --test-dir build-cross/$* --output-on-failure -R '^(simd_math|cpp)$$'
	cmake --build build-cross/$* --parallel $(JOBS) --target mica_extension -- $(NINJA_ARGS)
	MICA_CROSS=$* scripts/cross_python -m pytest -p no:hypothesispytest $(CROSS_TESTS) -m "not torch and not cuda" \
	  $(PYTEST_ARGS)

# Side by side with torch in one run; BENCH_ARGS="--only reduce" narrows it down.
BENCH_ARGS ?=
bench: build $(TORCH_PYTHON)
	PYTHONPATH=$(CURDIR)/build/python $(TORCH_PYTHON) -W ignore bench/workloads.py --lib mica --versus torch --threads 2 $(BENCH_ARGS)

# Operations by dtypes, layouts and sizes beside torch: the cells that are behind, and a summary.
sweep: build $(TORCH_PYTHON)
	PYTHONPATH=$(CURDIR)/build/python $(TORCH_PYTHON) -W ignore bench/sweep.py $(SWEEP_ARGS)

# Python itself is not instrumented: the run-time library is preloaded, and what the interpreter never frees is no leak.
# A request for more memory than there is fails as it does without the sanitizer. On two cores the instrumented kernels
# take more than an hour to compile; SANITIZE_ARGS=-DMICA_SANITIZE_KERNELS=OFF leaves them as they are.
SANITIZE_ARGS ?=
asan_options = ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=8192:exitcode=86
sanitize: $(VENV)/.installed
	@test -f build-sanitize/build.ninja || \
	  cmake --preset sanitize -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python $(SANITIZE_ARGS) --log-level=WARNING
	cmake --build build-sanitize --parallel $(JOBS) -- --quiet
	UBSAN_OPTIONS=print_stacktrace=1:exitcode=86 ctest --test-dir build-sanitize --output-on-failure
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	  $(asan_options) UBSAN_OPTIONS=print_stacktrace=1:exitcode=86 PYTHONPATH=$(CURDIR)/build-sanitize/python \
	  $(VENV)/bin/python -m pytest tests -n $(JOBS) -m "not torch and not cuda and not long" $(PYTEST_ARGS)

# What several threads touch at once, from C++ and from Python. The interpreter is not instrumented: what it does by itself
# is not seen, and its lock orders the rest.
THREAD_TESTS ?= Threads*:Parallel*:Engine*:Allocator*:DataLoader*:Hooks*:Storage*
THREAD_PYTHON_TESTS ?= tests/python/test_threads.py tests/data/test_dataloader.py tests/data/test_workers.py \
                       tests/autograd/test_hooks.py tests/autograd/test_modes.py
# A fork holds every lock of the library, which are more than the 64 that ThreadSanitizer's search for deadlocks allows.
thread_options = TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 detect_deadlocks=0 suppressions=$(CURDIR)/tests/thread_sanitizer.txt"
sanitize-threads: $(VENV)/.installed
	@test -f build-sanitize-threads/build.ninja || cmake --preset sanitize-threads \
	  -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python --log-level=WARNING
	cmake --build build-sanitize-threads --parallel $(JOBS) --target mica_tests mica_extension -- $(NINJA_ARGS)
	$(thread_options) GTEST_FILTER='$(THREAD_TESTS)' ctest --test-dir build-sanitize-threads --output-on-failure -R '^cpp$$'
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" $(thread_options) PYTHONPATH=$(CURDIR)/build-sanitize-threads/python \
	  $(VENV)/bin/python -m pytest $(THREAD_PYTHON_TESTS) -m "not torch and not cuda" $(PYTEST_ARGS)

# Random programs, compiled and not: their bits must agree.
PROGRAMS ?= 100000
compiler-fuzz: build
	PYTHONPATH=$(CURDIR)/build/python $(VENV)/bin/python tests/compiler/random_programs.py $(PROGRAMS)
	PYTHONPATH=$(CURDIR)/build/python $(VENV)/bin/python tests/compiler/random_layers.py $(PROGRAMS)

# Each fuzzer for a while, from the small corpus in the tree; what it finds stays in build-fuzz/findings.
FUZZ_SECONDS ?= 60
FUZZERS ?= archive pickle einsum index dlpack
fuzz: build
	@scripts/install_fuzzer
	cmake -S tests/fuzz/targets -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DMICA_BUILD=$(CURDIR)/build \
	  --log-level=WARNING
	cmake --build build-fuzz --parallel $(JOBS)
	@mkdir -p build-fuzz/findings
	@for name in $(FUZZERS); do \
	  echo "fuzz $$name for $(FUZZ_SECONDS) s"; mkdir -p build-fuzz/corpus/$$name; \
	  build-fuzz/fuzz_$$name -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=10 -max_len=4096 -verbosity=0 \
	    -print_final_stats=1 -artifact_prefix=build-fuzz/findings/$$name- build-fuzz/corpus/$$name \
	    tests/fuzz/corpus/$$name || exit 1; \
	done

# In a build folder of the same depth as `build` and with the compiler's name that CMake finds there, so that what was
# compiled in `build` comes out of ccache.
wheel: $(VENV)/.installed
	@rm -f dist/*.whl
	CXX=$${CXX:-c++} $(VENV)/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist --config-settings build-dir=build-wheel .
	$(PYTHON) scripts/build_mica_torch.py dist
	@ls -l dist/*.whl

# The wheels in an empty environment: Python, the command, torch's name, and C++ against what is inside.
test-wheel: wheel
	$(PYTHON) tests/wheel/check_wheel.py dist

# Everything that takes long, in order, with one page of results: build/nightly/results.md. NIGHTLY_ARGS="--only fuzz" narrows it.
NIGHTLY_ARGS ?=
nightly: $(VENV)/.installed
	$(PYTHON) scripts/nightly.py $(NIGHTLY_ARGS)

# The Lab without a server in build/lab: its page, and the engine compiled to WebAssembly by emscripten.
lab-wasm: $(VENV)/.installed
	@scripts/install_emscripten
	@test -f build-wasm/build.ninja || { echo "Compiling the Lab's engine to WebAssembly: 8 to 15 minutes on two cores the first time."; \
	  emcmake cmake -S . -B build-wasm -G Ninja -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/bin/python --log-level=WARNING; }
	NODE_PATH=/usr/share/nodejs cmake --build build-wasm --parallel $(JOBS) -- --quiet $(NINJA_ARGS)
	$(VENV)/bin/python lab/wasm/export.py --engine build-wasm --to build/lab

# The tests of the Lab's page in Chromium, on the page without a server; the engine of this machine is the judge.
test-lab-wasm: build lab-wasm
	@scripts/install_browser
	MICA_LAB_STATIC=$(CURDIR)/build/lab $(VENV)/bin/python -m pytest tests/lab -q -m "not torch and not cuda and not long" $(PYTEST_ARGS)

# The documentation as a static site in build/site: the guides are run, the reference is written from the tables. The
# generator has an environment of its own, so that build and tests do not need it.
SITE_VENV := .venv-site
SITE_ARGS ?=
$(SITE_VENV)/.installed: site/requirements.txt
	$(PYTHON) -m venv $(SITE_VENV)
	$(SITE_VENV)/bin/python -m pip install --quiet --upgrade -r site/requirements.txt
	touch $@

# The guides of C++ install what was built, distributions included.
site: build lab-wasm $(SITE_VENV)/.installed
	@flock build cmake --build build --parallel $(JOBS) --target mica_distributions mica_program -- $(NINJA_ARGS)
	PYTHONPATH=$(CURDIR)/build/python $(SITE_VENV)/bin/python site/make/build.py --jobs $(JOBS) $(SITE_ARGS)

SITE_PORT ?= 8000
site-serve: site
	$(SITE_VENV)/bin/python -m http.server --bind 127.0.0.1 --directory build/site $(SITE_PORT)

# Links, weights, examples and search of the site that was built, in Chromium.
test-site: site test-lab-wasm
	@scripts/install_browser
	$(VENV)/bin/python -m pytest site/tests -q $(PYTEST_ARGS)

# Seconds that the slowest source files take.
compile-times: build
	@$(VENV)/bin/python scripts/compile_times.py build

clean:
	rm -rf build build-wasm build-wheel build-cross build-sanitize build-sanitize-threads build-fuzz build-cuda dist
