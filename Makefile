# Short names for the sessions of noxfile.py, which make what they need: environments, jars, downloads.
# Variables: PYTHON=<interpreter>  TESTS=<pytest arguments>  BENCH=quick|standard|full  LANES=<parts at a time>
#   N=<faults>  SEED=<of them>  STORAGE=local|hdfs|s3  MUTANTS=<arguments>  SPARK=<version>  SUITES=<arguments>

NOX := .venv-nox/bin/nox --non-interactive
RELEASES = .venv-nox/bin/python -m state_store.session.releases | sed 's/^\([0-9]*\.[0-9]*\).*/setup-\1/'
BENCH ?= standard
N ?= 100
SPARK ?= 4.2.0

.PHONY: demo test test-more test-long lint docs benchmark mutants chaos spark-suites setup wheel release audit clean help
.DEFAULT_GOAL := help

demo: .venv-nox/.ready  ## Run a real query: commit, merge, cut the chain, get killed, restart, compare (2 minutes)
	@$(NOX) -s demo

test: .venv-nox/.ready  ## Run the tests on the newest Spark (TESTS='tests/core/settings -k name' runs some)
	@LANES='$(LANES)' $(NOX) -s test -- $(TESTS)

test-more: setup  ## Run the rest that a change must pass: older Sparks, packages, a soak, a cluster whose processes are killed
	@$(NOX) -s test-tier -- more

test-long: setup  ## Run what is too long for every run (hours; CONTRIBUTING.md lists it)
	@$(NOX) -s test-tier -- long
	@$(NOX) -s suites -- --only transform-with-state --only change-feed --only joins
	@$(NOX) -s suites -- --spark 4.1.1
	@$(NOX) -s suites -- --spark 4.0.1

lint: .venv-nox/.ready  ## Check formatting, style, types and dead code
	@$(NOX) -s lint

docs: .venv-nox/.ready  ## Write the generated pages, and build the site into build/site
	@$(NOX) -s pages docs

benchmark: .venv-nox/.ready  ## Compare with Spark's own stores and write docs/benchmarks.md
	@$(NOX) -s benchmark -- $(BENCH)

mutants: .venv-nox/.ready  ## Break the code in one line after the other: tests must see each (MUTANTS='--sample 5')
	@$(NOX) -s mutants -- $(MUTANTS)

chaos: .venv-nox/.ready  ## Kill and stop processes of a cluster N times at random: are its queries right?
	@$(NOX) -s chaos -- --faults $(N) $(SEED:%=--seed %) $(STORAGE:%=--storage %)

spark-suites: setup  ## Run Spark's own suites against the provider (SPARK=4.1.1 SUITES='--only GROUP')
	@$(NOX) -s suites -- --spark $(SPARK) $(SUITES)

setup: .venv-nox/.ready  ## Make the environments and compile the jars for all versions of Spark
	@$(RELEASES) | xargs -P 2 -n 1 $(NOX) -s

wheel: setup  ## Build the wheel, with the jars for all versions of Spark, and the source archive into dist/
	@$(NOX) -s wheel

release: wheel  ## Build the artefacts of a release, test them with each Spark, print how to publish them
	@$(NOX) -s release

audit: .venv-nox/.ready  ## Compare the installed packages with the advisories of PyPI (needs the network)
	@$(NOX) -s audit

clean:  ## Remove everything that the other targets made
	rm -rf .venv .venv-* build dist state_store/jars *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

help:  ## List the targets
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

.venv-nox/.ready: scripts/find-python
	@python=$$(PYTHON='$(PYTHON)' scripts/find-python) && { test -x .venv-nox/bin/python || "$$python" -m venv .venv-nox; }
	@.venv-nox/bin/python -m pip install --quiet --disable-pip-version-check 'nox>=2025.2.9'
	@touch $@
