# Needs python3 (3.11 or newer, with venv), a C++ compiler and make; everything else is installed into .venv,
# at the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
ROOMS := server graph_import runtime cuda_ext web workflows
export PIP_NO_INPUT := 1

CORPUS := .corpus
CORPUS_PACKAGES := comfyui-workflow-templates-json==0.1.123 comfyui-workflow-templates-media-image==0.3.48 \
	comfyui-workflow-templates-media-api==0.3.34 comfyui-workflow-templates-media-video==0.3.30 \
	comfyui-workflow-templates-media-other==0.3.65 comfyui-workflow-templates==0.1.95 comfyui-subgraph-blueprints==0.0.13

.PHONY: demo demo-quality test check bench bench-server bench-samplers conformance corpus wheel-test clean .typing

demo: $(INSTALLED)
	$(BIN)/nodeloom demo

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED) .typing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p nodeloom
	$(BIN)/python -m pytest -q tests/house

# Draws with the models that ship and looks at the pixels; fails when a limit is missed.
demo-quality: $(INSTALLED)
	$(BIN)/python -m training.quality

# All recorded numbers of ComfyUI (NODELOOM_GOLDENS says where they are); skips visibly without them.
# REPORT: a Markdown page to write, too.
conformance: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m conformance $(if $(REPORT),--markdown $(REPORT))

# Published workflow files, fetched once, converted and compared with the recorded prompts.
corpus: $(INSTALLED)
	test -d $(CORPUS) || $(PIP) install --quiet --no-deps --target $(CORPUS) $(CORPUS_PACKAGES)
	$(BIN)/python -m conformance.corpus --packages $(CORPUS)

bench: $(INSTALLED)
	$(BIN)/python benchmarks/bench_overhead.py

bench-server: $(INSTALLED)
	$(BIN)/python benchmarks/bench_server.py

bench-samplers: $(INSTALLED)
	$(BIN)/python benchmarks/bench_samplers.py

# Install afresh only when what is installed or compiled has changed; Python, JavaScript and data files are seen at once.
$(INSTALLED): pyproject.toml constraints.txt cuda_ext/CMakeLists.txt $(wildcard cuda_ext/csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt cmake ninja pybind11 scikit-build-core
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

# A wheel, installed into an environment of its own and tried outside the checkout.
wheel-test: $(INSTALLED)
	$(BIN)/python .ci/wheel_test.py

# Type checkers can't follow the mapping of the rooms to nodeloom.*: give mypy a folder that looks like the package.
.typing:
	mkdir -p .typing/nodeloom
	printf '__version__: str\nfrom nodeloom.graph_import.dsl import *\n' > .typing/nodeloom/__init__.pyi
	for room in $(ROOMS); do ln -sfn ../../$$room .typing/nodeloom/$$room; done

clean:
	rm -rf build dist .typing .mypy_cache .pytest_cache .ruff_cache .hypothesis $(INSTALLED)
