# Every target sets itself up: nothing is needed but Python 3.11 or later, make and the network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DOCS := $(VENV)/.ready-docs
FLOOR := .venv-floor
TORCH := .venv-torch
ALONE := build/alone
PROFILE ?= laptop
JOBS ?= 2
# Those of the papers; FIGURES=all has what is beyond them too, FIGURES=2,b1 some.
FIGURES ?= papers
# The paper's sizes take hours, so that what is published is not computed again; PUBLISHED= computes it.
PUBLISHED ?= $(if $(filter paper,$(PROFILE)),--published)
MINUTES ?= 4
# XLA for CPUs without its newer emitters for fusions, and with one LLVM module for each program.
COMPILES_SOONER := --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
# One thread for host BLAS: XLA has its own pool, and two pools on the same cores fight.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup reproduce smoke gallery test explore test-slow test-floor test-torch explore-torch lint types docs notebook bench bench-gpu wheel address clean

help:  ## say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## make .venv with pinned versions

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"gnjax needs Python 3.11 or later, {sys.executable} is {v.major}.{v.minor}; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# Many experiments spend most of their time on compilation. With these options XLA takes a quarter less
# time to compile, and the programs are as fast.
reproduce gallery: export XLA_FLAGS ?= $(COMPILES_SOONER)
reproduce: $(READY)  ## run, draw, check and report the papers' figures (PROFILE=laptop JOBS=2 FIGURES=papers)
	$(BIN)/python -m experiments.reproduce --profile=$(PROFILE) --figures=$(FIGURES) --jobs=$(JOBS) $(PUBLISHED)

# One process: it is compilation that takes the time, and two would compile everything twice.
smoke: $(READY)  ## every figure in four minutes, at toy sizes
	@$(MAKE) --no-print-directory reproduce PROFILE=smoke FIGURES=all JOBS=1

gallery: $(READY)  ## reproduce, and renew figures/gallery, the findings and expected.json
	$(BIN)/python -m experiments.reproduce --profile=laptop --figures=all --jobs=$(JOBS) --publish

# Most of the time of a test is compilation; the slow tests run what is compiled with all care.
# Without its newer emitters for fusions, and with one LLVM module a program, XLA compiles four times
# sooner on a CPU. What was compiled, however soon, is kept in build/ for a week, for both processes and
# for the next run. (With a limit on the size JAX reads the whole folder at each program that it adds.)
# A process takes tests that stand together, which share what they compile.
test: export XLA_FLAGS ?= $(COMPILES_SOONER)
test: export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/build/compiled
test: export JAX_COMPILATION_CACHE_MAX_SIZE ?= -1
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
test: $(READY)  ## the tests, in a few minutes
	@mkdir -p build/compiled && find build/compiled -name '*-cache' -mtime +7 -delete
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

explore: $(READY)  ## the property tests and the held-out trials on new random examples
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n 2 -k "interval or random or property"
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(BIN)/python -m tests.held_out.explore --minutes $(MINUTES)

test-slow: $(READY)  ## the tests that take longer
	$(BIN)/python -m pytest -n 2 -m slow

test-floor: $(FLOOR)/.ready  ## the tests on the oldest supported versions (Colab's)
	$(FLOOR)/bin/python -m pytest -n 2 -m "not slow"

$(FLOOR)/.ready: pyproject.toml constraints-floor.txt
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-floor.txt -e '.[dev]'
	@touch $@

test-torch: $(TORCH)/.ready  ## the tests of modules of PyTorch and Keras, in an environment that has them
	$(TORCH)/bin/python -m pytest tests/networks/torch_modules tests/diagnosis/test_loggers.py tests/cli/test_series.py tests/test_docstrings.py tests/networks/test_frameworks_with_state.py -k "torch or programs or tensorboard or keras"
	$(TORCH)/bin/python -m scripts.run_examples docs/howto/models/torch_modules.md

explore-torch: $(TORCH)/.ready  ## modules of PyTorch drawn at random, beside torch.autograd
	$(TORCH)/bin/python -m tests.networks.torch_modules.campaign --minutes $(MINUTES)

# The wheels of torch and torchvision have to be of one build, or torchvision does not import: this
# pair takes 5.5 GB with CUDA. SymPy, which torch needs, wants an older mpmath than ours.
$(TORCH)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(TORCH)
	grep -v '^mpmath==' constraints.txt > $(TORCH)/constraints.txt
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -c $(TORCH)/constraints.txt -e '.[dev,torch]' tensorboard torchvision timm transformers keras
	@touch $@

lint: $(READY)  ## ruff, and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(READY)  ## mypy
	$(BIN)/mypy

docs: export XLA_FLAGS ?= $(COMPILES_SOONER)
docs: $(READY_DOCS)  ## the documentation site in build/docs, and its examples
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky docs build/docs
	ls docs/*.md docs/*/*.md docs/howto/*/*.md | xargs -n 4 -P 2 $(BIN)/python -m scripts.run_examples

notebook: $(READY_DOCS)  ## renew notebooks/colab.ipynb from its text, and run it (PROFILE=laptop, KEEP=1 keeps outputs)
	$(BIN)/jupytext --quiet --update --to ipynb --output notebooks/colab.ipynb notebooks/colab.py
	GNJAX_PROFILE=$(PROFILE) $(BIN)/jupyter-execute $(if $(KEEP),--inplace) notebooks/colab.ipynb

$(READY_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

bench: $(READY)  ## measure the speed tables and renew their page (sets the rivals up: 15 GB)
	$(BIN)/python -m benchmarks.real_networks --save
	env -u OPENBLAS_NUM_THREADS -u OMP_NUM_THREADS $(BIN)/python -m benchmarks.linear_kappa --save
	$(BIN)/python -m benchmarks.rivals.install
	env -u OPENBLAS_NUM_THREADS -u OMP_NUM_THREADS $(BIN)/python -m benchmarks.network_spectra --save
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.laplace --save
	$(BIN)/python -m benchmarks.tables

bench-gpu: $(READY)  ## kappa of ResNet20 and eigenvalues of a GPT on an accelerator
	$(BIN)/python -m benchmarks.devices --save
	$(BIN)/python -m benchmarks.tables

wheel:  ## build sdist and wheel in build/dist, and try the wheel alone in a fresh environment
	rm -rf build/dist
	$(PYTHON) -m venv --clear $(ALONE)
	$(ALONE)/bin/python -m pip install --quiet --disable-pip-version-check build
	$(ALONE)/bin/python -m build --outdir build/dist > build/wheel.log
	$(PYTHON) -m venv --clear $(ALONE)
	$(ALONE)/bin/python -m pip install --quiet --disable-pip-version-check build/dist/*.whl
	$(ALONE)/bin/python -m pip check --disable-pip-version-check
	$(ALONE)/bin/python -I scripts/check_wheel.py build/dist
	$(ALONE)/bin/python -I -m doctest README.md

address:  ## put the project's address (URL=...) wherever it is repeated
	$(PYTHON) scripts/set_address.py "$(URL)"

clean:  ## remove environments and results
	rm -rf $(VENV) $(FLOOR) $(TORCH) .venv-rivals results build docs/reference/figures docs/gallery .pytest_cache .ruff_cache .mypy_cache .hypothesis
