# Needs Python 3.10-3.13 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed

.PHONY: paper demo test check install clean

# The grid of results/paper.yaml; GPU hours, resumable.
paper: install
	$(VENV)/bin/decap sweep results/paper.yaml

demo: install
	$(VENV)/bin/decap demo

test: install
	$(VENV)/bin/python -m pytest

check: install
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ty check

install: $(STAMP)

# The package is installed editable: only new requirements call for another round.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 10) <= sys.version_info < (3, 14); \
	  sys.exit(not ok and "decap needs Python 3.10 to 3.13, not %d.%d; choose one with make PYTHON=..." % sys.version_info[:2])'
	@echo "Installing decap into $(VENV); the first time takes some minutes."
	@$(PYTHON) -m venv $(VENV)
	@# Python 3.10 brings a pip that tries versions for an hour.
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --upgrade pip
	@$(VENV)/bin/python -m pip install -qq --disable-pip-version-check \
	  -c constraints.txt -e '.[train,robot,dev]'
	@touch $@

# Leaves runs/ alone: that is work, not output of the build.
clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis demo src/decap.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
