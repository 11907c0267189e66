# The same targets on a laptop and in CI. All they need is python3 (3.11 or newer, with venv) and make.

.PHONY: demo test test-all fuzz browser check goldens reference docs bench clean

# Corpora for the tests and recipes that need more than the embedded text; without the folder those tests are skipped.
SEQWRIGHT_DATA ?= ../shared/data
# In the shell, since make's own functions split names at spaces.
override SEQWRIGHT_DATA := $(shell cd "$(SEQWRIGHT_DATA)" 2>/dev/null && pwd -P)
ifeq ($(SEQWRIGHT_DATA),)
unexport SEQWRIGHT_DATA
else
export SEQWRIGHT_DATA
endif

PYTHON := .venv/bin/python
# Two workers with one thread each: more threads than cores make every test slower. A file stays on one worker, since
# the code blocks of a page go on where the last one ended.
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 --dist loadfile

demo: .venv/.ready
	.venv/bin/seqwright demo
	@echo "(once in a shell: source .venv/bin/activate)"

test: .venv/.ready
	$(PYTEST) -m "not slow"

test-all: .venv/.ready
	SEQWRIGHT_EXAMPLES=new $(PYTEST)

# The browser of tests/browser, on Debian and its relatives; without it those tests are skipped.
browser:
	command -v chromium || apt-get install --yes --no-install-recommends chromium

# Mutated files for every reader: `make fuzz MINUTES=10`; failures print the reader and seed for tests/fuzz/corpus.txt.
MINUTES ?= 5
fuzz: .venv/.ready
	OMP_NUM_THREADS=1 FUZZ_MINUTES=$(MINUTES) $(PYTHON) -m pytest tests/fuzz

check: .venv/.ready
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/codespell README.md CHANGELOG.md CONTRIBUTING.md Makefile pyproject.toml src tests docs benchmarks
	$(PYTHON) -m pytest tests/test_architecture.py

# Losses, scores, outputs and weights of small trainings over every family, against those on record.
goldens: .venv/.ready
	$(PYTHON) tests/goldens.py

# The pages that are written from the code.
reference: .venv/.ready
	$(PYTHON) -m seqwright recipes --markdown > docs/reference.md
	$(PYTHON) benchmarks/laws.py > docs/laws.md
	$(PYTHON) docs/commands_page.py > docs/commands.md
	$(PYTHON) docs/api_page.py
	$(PYTHON) docs/results_page.py > docs/results.md
	$(PYTHON) docs/lectures_page.py

# The site of docs/, in site/: open site/index.html. Its pages need no network.
docs: .venv/.ready
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: .venv/.ready
	set -e; for benchmark in $(sort $(wildcard benchmarks/*.py)); do echo "== $$benchmark"; $(PYTHON) $$benchmark; done

# What tools leave behind; .venv and runs are yours to delete.
clean:
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

.venv/.ready: pyproject.toml constraints.txt
	@echo "installing into .venv: minutes, in which pip prints nothing"
	test -x $(PYTHON) || python3 -m venv .venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
