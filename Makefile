# What one does with a checkout. Each target makes the environments that it needs (scripts/environment.py).
# Variables: PYTHON=<interpreter>  TESTS=<pytest arguments>  LANES=<parts at a time>  SPARK=<version>
#   BENCH=quick|standard|full  N=<faults>  SEED=<of them>  STORAGE=local|hdfs|s3  MUTANTS=<arguments>
#   SUITES=<arguments>  SPARKS=<older releases, joined by commas>  DRAW=<a word that draws some of the dear cases>
#   ORDER=<the number of a random order of the tests>

# Python keeps its byte code, here and in all that is started, whatever the shell says: without it every
# process compiles pandas and pyspark anew.
unexport PYTHONDONTWRITEBYTECODE

MAKE_ENVIRONMENT = python=$$(PYTHON='$(PYTHON)' scripts/find-python) && "$$python" scripts/environment.py
PY := .venv/bin/python
BENCH ?= standard
LANES ?= 4
N ?= 100
SPARKS ?= 4.2,4.1,4.0

.PHONY: demo test test-more test-long test-spark test-agent check lint docs pages benchmark mutants \
	generated-mutants chaos spark-suites setup wheel release audit clean help
.DEFAULT_GOAL := help

demo: .newest  ## Run a real query: commit, merge, cut the chain, get killed, restart, compare (2 minutes)
	@$(PY) examples/demo.py

test: .newest  ## Run the quick tests on the newest Spark (4 minutes; TESTS='tests/core/settings -k name' runs some)
	@$(if $(TESTS),$(PY) -m pytest $(TESTS),$(PY) tests/parts.py --lanes $(LANES) $(ORDER:%=--order %))

test-more: setup  ## Run the rest that a change must pass: dear tests, older Sparks, suites, packages, chaos
	@$(PY) tests/parts.py --tier more --lanes $(LANES) --sparks $(SPARKS) $(DRAW:%=--draw %)

test-long: setup  ## Run what is too long for every run (hours; tests/README.md lists it)
	@$(PY) tests/parts.py --tier long --lanes $(LANES) --sparks $(SPARKS)
	@$(PY) tests/suites/published_suites.py --spark 4.2.0 --only transform-with-state --only change-feed --only joins
	@$(PY) tests/suites/published_suites.py --spark 4.1.1
	@$(PY) tests/suites/published_suites.py --spark 4.0.1
	@scripts/test-anywhere

test-spark:  ## Run the tests that an older Spark has to pass (SPARK=4.0, TESTS=...)
	@$(MAKE_ENVIRONMENT) newest $(SPARK)
	@$$(test -d .venv-$(SPARK) && echo .venv-$(SPARK) || echo .venv)/bin/python -m pytest --tier more $(or $(TESTS),tests/spark)

test-agent:  ## Run the agent's tests alone, with PYTHON, as on executors
	@$(MAKE_ENVIRONMENT) agent
	@python=$$(PYTHON='$(PYTHON)' scripts/find-python); \
	.venv-agent-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/bin/python -m pytest tests/agent

check: .newest  ## Run both: all that a change must pass but lint and docs
	@$(PY) tests/parts.py --tier change --lanes $(LANES) --sparks $(SPARKS) $(DRAW:%=--draw %)

lint: .newest  ## Check formatting, style, types and dead code
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@$(PY) -m vulture
	@$(PY) scripts/check_scala.py jvm_bridge/scala* benchmarks tests
	@$(PY) scripts/format_scala.py --check

pages: .newest  ## Write the pages of options and metrics, and what lies in conf, from the declarations
	@mkdir -p build
	@$(PY) -m state_store.cli options --markdown > build/options.md && mv build/options.md docs/options.md
	@$(PY) -m state_store.cli options --conf > build/options.conf && mv build/options.conf conf/spark-defaults.conf
	@$(PY) -m benchmarks.page.report
	@$(PY) -m state_store.observe.documents
	@$(PY) -m state_store.observe.generated_files

docs: pages  ## Write the generated pages, and build the site into build/site; a broken link fails
	@$(MAKE_ENVIRONMENT) docs
	@.venv-docs/bin/python -m mkdocs build --strict

benchmark: .newest  ## Compare with Spark's own stores and write docs/benchmarks.md
	@$(PY) -m benchmarks $(BENCH)

mutants: .newest  ## Break the code in one line after the other: tests must see each (MUTANTS='--sample 5')
	@$(PY) tests/mutants/run.py $(MUTANTS)

generated-mutants: .newest  ## Break a room in every way that mutmut knows (MUTANTS='planning --sample 150')
	@$(PY) -m pip install --quiet --disable-pip-version-check mutmut==3.8.1
	@$(PY) tests/mutants/generated.py $(MUTANTS)

chaos: .newest  ## Kill and stop processes of a cluster N times at random: are its queries right?
	@PYTHONPATH=tests $(PY) -m chaos --faults $(N) $(SEED:%=--seed %) $(STORAGE:%=--storage %)

spark-suites:  ## Run Spark's own suites against the provider (SPARK=4.1.1 SUITES='--only GROUP')
	@$(MAKE_ENVIRONMENT) newest $(or $(basename $(SPARK)),4.2)
	@$(PY) tests/suites/published_suites.py --spark $(or $(SPARK),4.2.0) $(SUITES)

setup:  ## Make the environments and compile the jars for all versions of Spark
	@$(MAKE_ENVIRONMENT) newest $(or $(subst $(COMMA), ,$(SPARKS)),all)

wheel: setup  ## Build the wheel, with the jars for all versions of Spark, and the source archive into dist/
	@rm -rf dist
	@$(PY) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@$(PY) -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >/dev/null
	@$(PY) -m twine check --strict dist/*

release: wheel  ## Build the artefacts of a release, test them with each Spark, print how to publish them
	@STATE_STORE_TEST_DIST=dist $(PY) -m pytest tests/packaging
	@$(PY) scripts/release_steps.py dist

audit: .newest  ## Compare the installed packages with the advisories of PyPI (needs the network)
	@$(MAKE_ENVIRONMENT) audit
	@.venv-audit/bin/python -m pip_audit --progress-spinner off --strict --skip-editable \
	  --path $$($(PY) -c "import sysconfig; print(sysconfig.get_path('purelib'))")

clean:  ## Remove everything that the other targets made
	rm -rf .venv .venv-* build dist state_store/jars *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

COMMA := ,

.PHONY: .newest
.newest:
	@$(MAKE_ENVIRONMENT) newest
