# The only commands a person has to remember. Every one of them does its own set-up.
PYTHON ?= python3
# torch (the extra [train] needs it) goes in first and by itself, so that you choose the build: make quickstart TORCH='torch==2.13.0'
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: quickstart check test fuzz faults docs report bench readme pages clean

quickstart: $(VENV)/.user
	$(BIN)/bertvision quickstart

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Several processes of one thread each: tiny models gain nothing from a second. A GPU has tests of its own (-m gpu).
test: $(VENV)/.dev
	$(BIN)/python tools/browser.py
	CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Mutates everything that is read, 10,000 times each (an hour or two of one core); make test has a short version. One
# target, or one mutation again: make fuzz ARGS='squad --first 412 --count 1'. On more cores: ARGS='--processes 4'
fuzz: $(VENV)/.dev
	CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -W ignore tools/fuzz.py $(ARGS)

# Kills before every file operation of a run and at random moments of every stage, full disks, folders that vanish, slow
# clients of the server; and
# the benchmarks that start many processes.
# On more cores: make faults PROCESSES=16
PROCESSES ?= 4
faults: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[ray]'
	CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'faults or slow' -n auto --maxprocesses $(PROCESSES) --dist worksteal

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Draws the tables and figures of finished runs from their records; the tasks of GLUE, and of own tables, together.
# Those of studies have the papers' tables and what each way of tuning costs besides.
STUDIES := results/squad2/efficiency results/squad2/paper_batch
REPORTS := $(filter-out $(STUDIES),$(wildcard results/squad2/*)) results/glue results/classification results/answerability results/swag results/ner
report: $(VENV)/.user
	for folder in $(REPORTS); do $(BIN)/bertvision report $$folder --out $$folder || exit 1; done
	for folder in $(STUDIES); do $(BIN)/python -m studies report $$folder || exit 1; done

# Measures speeds side by side: make bench NAME=heads ARGS='--out results/bench --set rounds=3'
# What every variant of an experiment costs: make bench NAME=costs ARGS='--set config=mine.yaml --out runs/mine'
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.run $(NAME) $(ARGS)

# Runs the quickstart and puts what it printed into README.md.
readme: $(VENV)/.user
	$(BIN)/python tools/readme.py

# Writes --help into docs/commands.md, the default model's card into docs/default_model.md, docs/claims.md, every study.md and the tables of docs/howto/scale.md from results/.
pages: $(VENV)/.dev
	$(BIN)/python tools/pages.py

clean:
	rm -rf $(VENV) docs/_build build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bertvision needs Python 3.11 or later; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet '$(TORCH)'

$(VENV)/.user: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet -e '.[train]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $@ $(VENV)/.user
