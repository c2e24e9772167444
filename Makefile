# `make` lists the targets. Each sets up the virtual environment first if need be;
# nothing is assumed but Python 3.11 or newer, make and, for a control plane, Go.
PYTHON ?= $(firstword $(foreach p,python3.14 python3.13 python3.12 python3.11 python3 python,\
	$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := scoring cluster extender injector simulator service
K8S ?= 1.36
NODES ?= configs/demo-cluster.yaml
MINORS ?= 1.34 1.36 1.37
SECONDS ?= 600
TRACE ?= ../shared/traces
SEEDS ?= 42-51
# One more than processors: a test of a whole process waits for it, most of its time.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
PARALLEL := -n $(WORKERS) --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup run test test-unit explore check bench bench-mutate bench-cache bench-fleet bench-trace bench-scheduler fuzz fuzz-reviews chart cluster e2e e2e-full e2e-built $(MINORS:%=e2e-full-%) format image-tree image release-check requirements clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; say which with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY)  ## set up the virtual environment, and nothing else

run: $(READY)  ## serve the embedded demo cluster on 127.0.0.1:8888 (PORT=9000)
	@$(BIN)/gpu-extender serve --config configs/demo.yaml --examples $(if $(PORT),--port $(PORT))

test: $(READY)  ## all tests that need no control plane, with coverage by COVERAGE=1
ifeq ($(filter-out 0,$(COVERAGE)),)
	$(BIN)/python -m pytest -q $(PARALLEL) $(ARGS)
else
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q $(PARALLEL) $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --fail-under=95
	@$(BIN)/coverage report --fail-under=100 --include='scoring/*'
endif

test-unit: $(READY)  ## unit tests and doctests in seconds (PACKAGE=injector, ARGS='-k chain')
	$(BIN)/python -m pytest -q $(if $(PACKAGE),tests/unit/$(PACKAGE) $(filter scoring,$(PACKAGE)),tests/unit scoring) $(ARGS)

explore: $(READY)  ## property tests with new random histories (SECONDS=600)
	$(BIN)/python -m tests.explore --seconds $(SECONDS)

check: $(READY)  ## format, lint, types, layers, benchmarks untimed
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/mypy tests bench
	$(BIN)/mypy deploy/kubectl/kubectl-gpu
	$(BIN)/mypy deploy/image/build_tree.py deploy/image/build_image.py deploy/release_check.py deploy/dashboard.py
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q --benchmark-disable bench

chart: $(READY)  ## lint and render the chart by Helm 3 and 4, and check what comes out
	$(BIN)/python tests/e2e/build.py --chart
	$(BIN)/python -m pytest -q $(PARALLEL) tests/chart

format: $(READY)  ## format the code
	$(BIN)/ruff format .

bench: $(READY)  ## time kernels, verbs, and calls over HTTP beside an echo floor
	$(BIN)/python -m pytest -q --benchmark-only --benchmark-columns=median,iqr,ops bench
	$(BIN)/python -m bench.extender.http

bench-mutate: $(READY)  ## time reviews over HTTPS beside an echo floor, and beside the verbs
	$(BIN)/python -m bench.injector.mutate

bench-cache: $(READY)  ## time list and watch of the cache, and its memory
	$(BIN)/python -m bench.cluster.cache

bench-fleet: $(READY)  ## sets of GPUs that jobs get on a mixed NVLink fleet, by way of placing them
	$(BIN)/python -m bench.scoring.nvlink_fleet

bench-trace: $(READY)  ## GPUs allocated on the public trace, by our profile and by others; then bench-fleet (TRACE=../shared/traces SEEDS=52-61)
	$(BIN)/python -m bench.simulator.trace --trace $(TRACE) --seeds $(SEEDS) --fleet

bench-scheduler: $(READY)  ## time the real kube-scheduler, with us and without (K8S=1.36)
	$(BIN)/python tests/e2e/build.py --minor $(K8S)
	$(BIN)/python -m bench.scheduler --minor $(K8S)

fuzz: $(READY)  ## mutated bodies against the extender for ten minutes (SECONDS=600)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

fuzz-reviews: $(READY)  ## mutated admission reviews against the webhook (SECONDS=600)
	$(BIN)/python -m tests.fuzz.reviews --seconds $(SECONDS)

cluster: $(READY)  ## a whole cluster on this machine, to try the chart on (NODES=nodes.yaml, K8S=1.36)
	@$(BIN)/python tests/e2e/build.py --minor $(K8S)
	@$(BIN)/python tests/e2e/build.py --minor $(K8S) --chart
	@test -d build/image-tree || $(BIN)/python deploy/image/build_tree.py
	@exec $(BIN)/python -m tests.e2e.cluster --minor $(K8S) --nodes $(NODES) \
	  $(if $(IMAGE_TREE),--image-tree $(IMAGE_TREE),--source .) $(ARGS)

e2e: $(READY)  ## the suite on a real control plane (K8S=1.36)
	$(BIN)/python tests/e2e/build.py --minor $(K8S)
	K8S=$(K8S) IMAGE_TREE=$(IMAGE_TREE) $(BIN)/python -m pytest -q -m "e2e and not long" tests/e2e

e2e-full: $(MINORS:%=e2e-full-%)  ## the suite with its long tests, on each minor (make -j3 runs all at once)

$(MINORS:%=e2e-full-%): e2e-full-%: e2e-built
	K8S=$* $(BIN)/python -m pytest -q -m e2e tests/e2e

e2e-built: $(READY)
	for minor in $(MINORS); do $(BIN)/python tests/e2e/build.py --minor $$minor || exit 1; done

image-tree: $(READY)  ## build the files of the image, measure them, start them
	$(BIN)/python deploy/image/build_tree.py --check-wheels
	$(BIN)/python deploy/image/build_tree.py
	$(BIN)/python -m pytest -q -m image tests/image/test_image_tree.py

image: $(READY)  ## build the image by buildah on a base of its own, start it; wants root (BASE=python:3.13-slim)
	$(BIN)/python -m deploy.image.build_image $(if $(BASE),--base $(BASE))
	$(BIN)/python -m pytest -q -m image tests/image/test_image.py

release-check: image-tree  ## build wheel, sdist, image and chart, install them in a clean place, run them
	$(BIN)/python tests/e2e/build.py --chart
	$(BIN)/python -m deploy.release_check

requirements: $(READY)  ## pin the newest versions, with hashes and without addresses
	$(BIN)/python -m pip install --quiet pip-tools
	for name in runtime dev; do \
	  CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --allow-unsafe --strip-extras \
	    -o requirements/$$name.txt requirements/$$name.in || exit 1; \
	done

clean:  ## remove the virtual environment, what was built and all caches
	rm -rf $(VENV) build bench/scheduler/noop/build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .coverage .coverage.*
