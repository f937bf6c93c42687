# Every target makes its own set-up: .venv, the pinned requirements, Java. Nothing but Python 3.11+ is presumed.
.DEFAULT_GOAL := help
.PHONY: help run console quick test test-oldest-spark check lint types imports docs fuzz bench clean requirements supply-chain env env-dev env-bench env-audit java test-programs torture spark-kills wheel

BIN := .venv/bin
TESTS ?= tests
PROCESSES ?= 4
DATA ?= build/story/log

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: env java ## the whole story: write a change stream, stream and compact it on Spark, snapshot, report
	@$(BIN)/python -m examples.story

console: env ## the page in the browser, on the directory that `make run` left (DATA=path for another)
	@$(BIN)/duralog console $(DATA)

wheel: ## a wheel with the kernels' machine code, in dist: takes a C compiler and Python's headers (DURALOG_REPOSITORY=https://... for links on a package index)
	@DURALOG_WHEEL=machine-code python3 -m pip wheel --quiet --no-deps --wheel-dir dist . && ls dist

quick: env-dev ## unit tests of all layers, without the slow ones: no Java, no browser
	@$(BIN)/python -m scripts.run_tests -n $(PROCESSES) --quick

test: env-dev java test-programs ## all tests, in four processes (many wait for other programs), and the few that fail a second time (TESTS=path for some)
	@$(BIN)/python -m scripts.run_tests -n $(PROCESSES) $(TESTS)

test-oldest-spark: env-dev java ## the tests of Spark with the oldest version that duralog runs on (SPARK=4.1 for another, TESTS=path for some)
	@PROCESSES=$(PROCESSES) scripts/other-spark.sh $(or $(SPARK),4.0) $(filter-out tests,$(TESTS))

check: env-dev java test-programs lint types imports test ## lint, types, import contracts, tests

lint: env-dev ## ruff: style and formatting
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: env-dev ## mypy
	@$(BIN)/mypy

imports: env-dev ## which package may import which
	@$(BIN)/lint-imports

docs: env-dev ## the documentation as a site, in build/docs
	@$(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/docs-trees . build/docs && echo build/docs/index.html

fuzz: env-dev ## the randomised tests at length: over 100,000 damaged logs
	@$(BIN)/python -m pytest tests/properties --randomised 40

torture: env-dev ## a broker under load, killed and failed in every way, then checked (MINUTES=8, SEED=number for an earlier run)
	@$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),8) $(if $(SEED),--seed $(SEED))

spark-kills: env-dev java ## kill twenty Spark drivers that copy a growing log into every sink, and count the records (KILLS=number for more)
	@$(BIN)/python -m pytest tests/spark/sink/test_killed_drivers.py -q -s --randomised $(or $(KILLS),20)

bench: env-bench java ## benchmarks against the peers (JOB=name for one, QUICK=1 for a short run)
	@$(BIN)/python -m bench $(if $(JOB),--job $(JOB)) $(if $(QUICK),--quick)

requirements: ## the hashes of the pinned requirements: after a change of a version
	@$(or $(wildcard $(BIN)/python),python3) scripts/hashed_requirements.py --update

supply-chain: env-audit ## a bill of materials, the licences and known advisories of what duralog depends on
	@$(BIN)/python -m scripts.supply_chain

clean: ## remove what the other targets made, bench data too
	rm -rf .venv build dist bench/data bench/work .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

env:
	@scripts/python-env.sh requirements.txt
env-dev:
	@scripts/python-env.sh requirements-dev.txt
env-bench:
	@scripts/python-env.sh requirements-bench.txt
env-audit:
	@scripts/python-env.sh requirements-audit.txt
java:
	@scripts/java.sh
test-programs:
	@scripts/test-programs.sh
