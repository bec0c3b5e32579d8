# make demo   see it work, with Python alone      (CLUSTER=real: on a real Kubernetes)
# make test   everything that proves it           (KUBERNETES=1.36: on the older release)
# make help   the other targets

PYTHON ?= python3
KUBERNETES ?= 1.37
BIN := .venv/bin
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
export KUBERNETES

# Python keeps what it has compiled, whatever the environment says: tests start it a thousand times.
unexport PYTHONDONTWRITEBYTECODE

# The tests that need a Kubernetes. `make test` runs the others beside them, and beside its build.
ON_KUBERNETES := kubernetes or node or helm
REST_LOG := .cluster/test.log

.DEFAULT_GOAL := help
.PHONY: help setup lint types rest-of-lint format test test-fast demo release bench gpu-proof cluster cluster-down docs manifests proto lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: .venv/.ready ## makes .venv from the lock file

# Built anew when the lock or the project changes; --require-hashes refuses anything the lock does not name.
.venv/.ready: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

lint: setup ## style, types, layering, generated code, links of the docs
	@$(MAKE) --no-print-directory --jobs=2 --output-sync types rest-of-lint

types: setup
	$(BIN)/mypy

rest-of-lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check
	$(BIN)/python -m deploy.generate --check
	$(SITE) --quiet

format: setup ## formats the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Each of `python -m tests` keeps two cores busy. The rest yields to the tests on Kubernetes, which have
# deadlines and wait a lot, and so does the build.
test: lint ## everything: lint, then all tests, on a real Kubernetes where there is Go
	@mkdir -p $(dir $(REST_LOG))
	nice -n 10 $(BIN)/python -m tests -m "not ($(ON_KUBERNETES))" > $(REST_LOG) 2>&1 & rest=$$!; \
	trap "kill $$rest" INT TERM; \
	nice -n 10 $(BIN)/python -m simulation.kubernetes.build; \
	$(BIN)/python -m tests -m "$(ON_KUBERNETES)"; on_kubernetes=$$?; \
	wait $$rest; rest=$$?; cat $(REST_LOG); \
	test $$on_kubernetes = 0 && test $$rest = 0

test-fast: setup ## the inner loop: all that needs no real Kubernetes and no Go
	$(BIN)/python -m tests -m "not ($(ON_KUBERNETES) or oracle or gpu)"

demo: setup ## shows it working on this machine (CLUSTER=real: on a real Kubernetes)
	$(BIN)/python -m simulation.demo $(if $(filter real,$(CLUSTER)),--real)

release: setup ## makes all that a release has (DIR=folder, which must be empty or new)
	@test -n "$(DIR)" || { echo "name the folder of the release: make release DIR=dist/release" >&2; exit 2; }
	$(BIN)/python -m release $(DIR)

bench: setup ## measures it (NAMES="unlike mig": these fleets only)
	$(BIN)/python -m tests.benchmarks $(NAMES)

gpu-proof: setup ## proves on a GPU what tests without one simulate (PART=mps: that part; REPORT=folder)
	$(BIN)/python -m gpu_proof $(addprefix --part ,$(PART)) $(if $(REPORT),--report $(REPORT))

cluster: setup ## leaves a real Kubernetes with one node running
	$(BIN)/python -m simulation.kubernetes up

cluster-down: setup ## ends it
	$(BIN)/python -m simulation.kubernetes down

docs: setup ## makes the site of the docs in dist/site
	$(SITE)

proto: setup ## generates kubelet_plugin/kubelet/pb from proto/
	$(BIN)/python proto/generate.py

manifests: setup ## generates deploy/ and the reference in docs/: from types, and from deploy/chart with Helm
	$(BIN)/python -m deploy.generate
	$(BIN)/python -m deploy.manifests

lock: setup ## pins what pyproject.toml asks for (needs uv)
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --quiet --output-file requirements.lock
	uv pip compile pyproject.toml --constraint requirements.lock --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --quiet \
		--output-file requirements-runtime.lock
	uv pip compile --group build --constraint requirements.lock --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --quiet \
		--output-file requirements-build.lock

clean: ## removes what was made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
