# Two commands are enough: `make demo` and `make test`. Everything happens in .venv and build/.
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
REPORT := build/demo-report.html
REHEARSAL := build/rehearsal-report.html
ARGS   ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo rehearse test end-to-end lint style types arrows format bench bench-control evidence fidelity wheel lock clean
.DELETE_ON_ERROR:

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked requirements and the project in it

# Redone when the lock or the project's own metadata change.
$(READY): pyproject.toml requirements.lock scripts/setup.sh
	@scripts/setup.sh $(VENV)

demo: $(READY) ## a flash crowd on the fleet twin, met by Governor; scoreboard against its peers, HTML report
	@mkdir -p build
	$(VENV)/bin/governor simulate examples/scenarios/flash.yaml --report $(REPORT)

rehearse: $(READY) ## what Governor would have done on a real vLLM recording, with an HTML report
	@mkdir -p build
	$(VENV)/bin/governor dry-run --config examples/demo.yaml \
	  --recording examples/recordings/vllm-0.32-cpu-1s.jsonl.gz --report $(REHEARSAL)

test: $(READY) ## run the tests (ARGS="-k name" for some), with the real programs where they can be had
	@tools=$$(scripts/real-programs.sh); PATH="$$PATH:$$tools" $(PY) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

end-to-end: $(READY) ## a slow replica, a flash and a killed Governor, with real Envoy and Prometheus (docs/end-to-end.md)
	@tools=$$(scripts/real-programs.sh prometheus envoy); PATH="$$PATH:$$tools" $(PY) -m pytest -q tests/end_to_end
	@cat build/end-to-end.md

lint: style types arrows ## style, types, and the arrows between the rooms (-k to see all that is wrong)

style: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY)
	$(VENV)/bin/mypy

arrows: $(READY)
	$(VENV)/bin/lint-imports --no-logo

format: $(READY) ## let ruff mend what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(READY) ## measure a tick against a real Prometheus (docs/performance.md)
	@tools=$$(scripts/real-programs.sh); PATH="$$PATH:$$tools" $(PY) -m benchmarks $(ARGS)

bench-control: $(READY) ## Governor against its peers and the bounds, two hours on two cores (docs/benchmarks.md; ARGS=--short)
	$(PY) -m benchmarks.control $(ARGS)

evidence: $(READY) ## rehearse the public recordings anew and write docs/evidence.md
	$(PY) -m benchmarks.evidence

fidelity: $(READY) ## calibrate on the public logs and recordings anew and write docs/fidelity.md
	$(PY) -m benchmarks.fidelity

wheel: $(READY) ## build dist/*.whl
	$(PY) -m build --wheel --no-isolation

lock: ## write requirements.lock anew (ARGS=--upgrade for newer versions)
	scripts/lock.sh $(ARGS)

clean: ## remove .venv, build/ and dist/
	rm -rf $(VENV) build dist
