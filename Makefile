# Everything a checkout needs, made on demand: each target creates the virtual environments and compiles the jars first.
# Variables: PYTHON=<interpreter>  BENCH=quick|standard|full  TESTS=<pytest arguments>
#   N=<faults of make chaos>  SEED=<of them>  STORAGE=local|hdfs|s3  LANES=<parts of the tests at a time>

# The versions of Spark that this Python runs and the names of their jars, the newest first (state_store/session/releases.py).
# `make test` runs all on the newest, `make test-more` some of each kind on 4.2, a few on 4.0 and 4.1.
RELEASES := $(shell python=$$(PYTHON='$(PYTHON)' scripts/find-python 2>/dev/null) && "$$python" -m state_store.session.releases)
NEWEST_SPARK := $(firstword $(RELEASES))
OLDER_SPARK := $(filter 4.2.%,$(RELEASES))
BENCH ?= standard
TESTS ?=
N ?= 100

# Parts of the tests, each a process: a Spark session lives as long as the process that started it. LANES of them run at
# a time, in this order, the longest first, so that none is left alone at the end. A part leaves a core idle for much of
# its time.
LANES ?= 3
PARTS := test-core test-spark test-jvm test-state test-simulation test-functions test-storage
MORE_PARTS := test-packaging test-spark-4.2 test-chaos test-more-jvm test-more-functions test-spark-4.1 test-spark-4.0
JVM_TESTS := bridge jvm conformance
STORAGE_TESTS := core/storage cli/test_cli_hdfs.py data/dataset/test_remote.py benchmarks
SIMULATED_TESTS := simulation core/deletion agent
STATE_TESTS := spark/state spark/migration
APART := spark functions packaging chaos $(JVM_TESTS) $(STORAGE_TESTS) $(SIMULATED_TESTS)

BIN := .venv/bin
JAR := state_store/jars/$(word 2,$(RELEASES))
OLDER_JAR := state_store/jars/incremental-state-store-spark-4.2.jar
OLDEST_JARS := $(patsubst %,state_store/jars/incremental-state-store-spark-%.jar,4.0 4.1)
SOURCES := $(shell find jvm_bridge state_store -name '*.scala' -o -name '*.py' -o -path 'jvm_bridge/resources/*' -type f)
SCALA_DIRS := $(wildcard jvm_bridge/scala jvm_bridge/scala-4.* benchmarks/scala tests)

.PHONY: demo test test-more test-long chaos mutants audit lint spark-suites benchmark jars wheel release docs setup clean help
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

demo: .venv/.ready $(JAR)  ## Run a real query: commit, merge, cut the chain, get killed, restart, compare (2 minutes)
	@$(BIN)/python examples/demo.py

IN_LANES = room=$$(scripts/tests-directory); [ -z "$$room" ] || export TMPDIR="$$room"; \
	$(MAKE) --no-print-directory --keep-going --output-sync=target -j$(LANES)

test: .venv/.ready $(JAR)  ## Run the tests on the newest Spark (TESTS='tests/core/settings -k name' runs some)
ifneq ($(TESTS),)
	$(BIN)/python -m pytest $(TESTS)
else
	@$(IN_LANES) $(PARTS)
endif

test-more: setup  ## Run the rest that a change must pass: older Sparks, packages, a soak, a cluster whose processes are killed
	@$(IN_LANES) $(MORE_PARTS)

# Each part says what took it the longest.
SLOWEST := --durations=12 --durations-min=2

test-core:
	$(BIN)/python -m pytest $(SLOWEST) $(foreach part,$(APART),--ignore=tests/$(part))
test-jvm:
	$(BIN)/python -m pytest $(SLOWEST) $(JVM_TESTS:%=tests/%)
test-storage:
	$(BIN)/python -m pytest $(SLOWEST) $(STORAGE_TESTS:%=tests/%)
test-simulation:
	$(BIN)/python -m pytest $(SLOWEST) $(SIMULATED_TESTS:%=tests/%)
test-state:
	$(BIN)/python -m pytest $(SLOWEST) $(STATE_TESTS:%=tests/%)
test-spark:
	$(BIN)/python -m pytest $(SLOWEST) $(STATE_TESTS:%=--ignore=tests/%) tests/spark
test-functions test-chaos test-packaging: test-%:
	$(BIN)/python -m pytest $(SLOWEST) tests/$*
test-more-jvm:
	$(BIN)/python -m pytest $(SLOWEST) -m more $(JVM_TESTS:%=tests/%) $(STORAGE_TESTS:%=tests/%)
test-more-functions:
	$(BIN)/python -m pytest $(SLOWEST) -m more tests/functions
test-spark-4.2:
	.venv-4.2/bin/python -m pytest -m 'spark42 and not long' tests/spark

test-spark-4.0 test-spark-4.1: test-spark-%: .venv-%/.ready state_store/jars/incremental-state-store-spark-%.jar
	.venv-$*/bin/python -m pytest -m 'oldest and not long' tests/spark

# The soak alone takes longer than a test that hangs may.
LONG := -m long -o faulthandler_timeout=9000

test-long: setup  ## Run what is too long for every run (hours; CONTRIBUTING.md lists it)
	$(BIN)/python -m pytest $(LONG) $(foreach part,$(APART),--ignore=tests/$(part))
	$(BIN)/python -m pytest $(LONG) $(SIMULATED_TESTS:%=tests/%)
	$(BIN)/python -m pytest $(LONG) $(JVM_TESTS:%=tests/%) $(STORAGE_TESTS:%=tests/%)
	$(BIN)/python -m pytest $(LONG) tests/spark
	$(BIN)/python -m pytest $(LONG) tests/functions
	$(BIN)/python -m pytest $(LONG) tests/packaging
	$(BIN)/python -m pytest $(LONG) tests/chaos
	.venv-4.2/bin/python -m pytest -m 'spark42 or spark42_long' tests/spark
	.venv-4.2/bin/python -m pytest -m 'spark42 or spark42_long' tests/functions
	$(MAKE) .venv-4.0/.ready .venv-4.1/.ready
	.venv-4.1/bin/python -m pytest -m 'oldest or spark42 or spark42_long' tests/spark
	.venv-4.1/bin/python -m pytest -m 'spark42' tests/functions
	.venv-4.0/bin/python -m pytest -m 'oldest or spark42_long' tests/spark/operators/test_operators.py tests/spark/migration/test_migration.py
	.venv-4.0/bin/python -m pytest -m 'oldest or spark42_long' tests/spark/operators/test_marked_functions.py
	.venv-4.0/bin/python -m pytest -m 'spark42' tests/functions
	$(BIN)/python tests/suites/run.py --only transform-with-state --only change-feed --only joins
	$(MAKE) spark-suites SPARK=$(filter 4.1.%,$(RELEASES))
	$(MAKE) spark-suites SPARK=$(filter 4.1.%,$(RELEASES)) SUITES='--only transform-with-state --only change-feed'
	$(MAKE) spark-suites SPARK=$(filter 4.0.%,$(RELEASES)) SUITES='--only contract --only dedup --only reader --only transform-with-state --only change-feed'

chaos: .venv/.ready $(JAR)  ## Kill and stop processes of a cluster N times at random: are its queries right? (N=500: an hour)
	@PYTHONPATH=tests $(BIN)/python -m chaos --faults $(N) $(SEED:%=--seed %) $(STORAGE:%=--storage %)

mutants: setup  ## Break the code in one line after the other: tests must see each (MUTANTS='--sample 5' tries some)
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

audit: .venv/.ready  ## Compare the installed packages with the advisories of PyPI (needs the network)
	@test -x .venv-audit/bin/pip-audit || { python3 -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	.venv-audit/bin/pip-audit --progress-spinner off --strict --skip-editable --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

lint: .venv/.ready  ## Check formatting, style, types and dead code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/vulture
	$(BIN)/python scripts/check_scala.py $(SCALA_DIRS)

# Of the releases that Spark publishes its test classes for: 4.0.1, 4.1.1, 4.2.0.
SPARK := $(OLDER_SPARK)
SUITES_MINOR = $(basename $(SPARK))
SUITES_JAR = state_store/jars/incremental-state-store-spark-$(SUITES_MINOR).jar

spark-suites: .venv/.ready .venv-$(SUITES_MINOR)/.ready $(SUITES_JAR)  ## Run Spark's own suites against the provider (SPARK=4.1.1 SUITES='--only GROUP')
	$(BIN)/python tests/suites/run.py --spark $(SPARK) $(SUITES)

benchmark: .venv/.ready $(JAR)  ## Compare with Spark's own stores and write docs/benchmarks.md (BENCH=quick|standard|full)
	$(BIN)/python -m benchmarks $(BENCH)

jars: setup $(OLDEST_JARS)  ## Compile the jars for all versions of Spark

wheel: jars  ## Build the wheel, with the jars for all versions of Spark, into dist/
	@rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls -l dist/*.whl

release: wheel  ## Build the artefacts of a release, test them with each Spark, print how to publish them
	$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" > /dev/null
	$(BIN)/python -m twine check --strict dist/*
	STATE_STORE_TEST_DIST=dist $(BIN)/python -m pytest tests/packaging
	$(BIN)/python scripts/release_steps.py dist

docs: .venv/.ready  ## Write docs/options.md, docs/metrics.md and conf/spark-defaults.conf from the declarations
	$(BIN)/python -m state_store.core.settings.pages
	$(BIN)/python scripts/metrics_page.py

setup: .venv/.ready .venv-4.2/.ready $(JAR) $(OLDER_JAR)  ## Create both virtual environments and compile both jars

clean:  ## Remove everything that the other targets made
	rm -rf .venv .venv-4.* .venv-audit build dist state_store/jars *.egg-info .pytest_cache .ruff_cache .mypy_cache \
		.hypothesis

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

.venv/.ready: EXTRAS = test,lint,benchmark
.venv/.ready: VERSION = $(NEWEST_SPARK)
.venv-4.2/.ready: EXTRAS = test
.venv-4.2/.ready: VERSION = $(OLDER_SPARK)
.venv-4.%/.ready: EXTRAS = test
# With pyarrow 26, these fail in Spark's own applyInPandasWithState (docs/compatibility.md).
.venv-4.0/.ready: VERSION = $(filter 4.0.%,$(RELEASES)) 'pyarrow<26'
.venv-4.1/.ready: VERSION = $(filter 4.1.%,$(RELEASES)) 'pyarrow<26'
%/.ready: pyproject.toml
	@scripts/check-java
	@python=$$(scripts/find-python) && { test -x $*/bin/python || "$$python" -m venv $*; }
	@echo "Installing into $* (pyspark $(VERSION) is a download of about 450 MB, the first time only)"
	@$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]' pyspark==$(VERSION)
	@touch $@

$(JAR): .venv/.ready $(SOURCES)
	@$(BIN)/python -m state_store.session.build
	@touch $@

$(OLDEST_JARS): state_store/jars/incremental-state-store-spark-%.jar: .venv-%/.ready $(SOURCES)
	@.venv-$*/bin/python -m state_store.session.build
	@touch $@

ifneq ($(JAR),$(OLDER_JAR))
$(OLDER_JAR): .venv-4.2/.ready $(SOURCES)
	@.venv-4.2/bin/python -m state_store.session.build
	@touch $@
endif
