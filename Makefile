# Needs Python 3.10-3.13 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
# TORCH=cpu: torch without the gigabytes of CUDA packages, for Linux without a GPU.
TORCH ?= default
CPU_INDEX := https://download.pytorch.org/whl/cpu
# Where the package's page on an index finds files: https://github.com/OWNER/decap
REPOSITORY ?= $(shell git remote get-url origin 2>/dev/null)

.PHONY: paper tables motion demo test mutants check docs wheel install clean

# The grid of results/paper.yaml; GPU hours, resumable.
paper: install
	$(VENV)/bin/decap sweep results/paper.yaml; code=$$?; \
	  $(VENV)/bin/python docs/tools/paper_collect.py runs/paper; exit $$code

# The page docs/paper.md from results/paper: tables, LaTeX, HTML, figures; seconds.
tables: install
	$(VENV)/bin/python docs/tools/paper.py

# Its figures of motion, from the released policies; a minute each.
motion: install
	$(VENV)/bin/python docs/tools/paper.py --motion

demo: install
	$(VENV)/bin/decap demo

test: install
	$(VENV)/bin/python -m pytest

# Small wrong changes of the code that the tests must notice; 7 minutes on two cores.
mutants: install
	$(VENV)/bin/python -m tests.mutants --output results/mutants.json

check: install
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ty check

# Into site/; needs no network. Warnings are errors, broken links included.
docs: install
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

wheel: install
	DECAP_REPOSITORY="$(REPOSITORY)" $(VENV)/bin/python -m pip wheel -q --no-deps -w dist .
	@ls dist

install: $(STAMP)

# The package is installed editable: only new requirements call for another round.
$(STAMP): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 10) <= sys.version_info < (3, 14); \
	  sys.exit(not ok and "decap needs Python 3.10 to 3.13, not %d.%d; choose one with make PYTHON=..." % sys.version_info[:2])'
	@echo "Installing decap into $(VENV); the first time takes some minutes."
	@$(PYTHON) -m venv $(VENV)
	@# Python 3.10 brings a pip that tries versions for an hour.
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --upgrade pip
ifeq ($(TORCH),cpu)
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check \
	  -c constraints.txt --index-url $(CPU_INDEX) torch torchvision
endif
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check \
	  -c constraints.txt -e '.[train,robot,cluster,dev,docs]'
	@touch $@

# Leaves runs/ alone: that is work, not output of the build.
clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis demo site build dist \
	  src/decap.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
