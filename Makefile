# `make demo` and `make test` are all that a newcomer needs; both set up what they use.
SHELL := /bin/bash
HOME_DIR := $(CURDIR)/.spillway
export PATH := $(HOME_DIR)/bin:$(HOME_DIR)/venv/bin:$(PATH)
export CARGO_TARGET_DIR := $(HOME_DIR)/target
export SPILLWAY_ENVOY := $(HOME_DIR)/venv/bin/envoy
# Keeps compiled Python sources. Without them, each start of a worker takes 2 s of CPU time, not 0.8.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(HOME_DIR)/pycache
export SPILLWAY_FILTER_WASM := $(HOME_DIR)/wasm/spillway_filter.wasm
# Tests of servers wait about half of the time: three files at a time, each file's in one process.
# Files begin in the order of the folders, the longest first, so that no process is left with one.
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder
PYTHON_BOXES := contracts/python streams optimizer rule-publisher/publisher infra/clickhouse lab

.PHONY: help setup demo lab stack replay clean \
  test test-unit test-component test-e2e test-deploy test-long test-matrix test-order test-optima fuzz soak-relay \
  check generate lock \
  experiments report accuracy-traces accuracy-ratios accuracy-lab \
  bench-optimizer bench-streams bench-admission bench-freshness bench-trickle bench-footprint bench-reaction bench-simulator bench-collector bench-relay bench-filter \
  images package

##@ Start

help: ## lists the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## bring servers, tools and our own builds into .spillway/ (called by the others)
	@infra/local/setup

# Live runs measure users' requests beside the pipeline. Fewer processes leave them the machine.
demo lab experiments bench-reaction: export SPILLWAY_STREAMS ?= all
demo: setup ## two clusters, west overloaded: local, Waterfall and Spillway, three rounds each (< 10 min)
	@python -m spillway_lab demo --scenario lab/scenarios/repeated-calls.yaml

lab: setup ## SCENARIO=name or file: a scenario live, its policies in interleaved rounds (see lab/SCENARIOS.md)
	@test -n "$(SCENARIO)" || { echo "usage: make lab SCENARIO=<a name in lab/scenarios, or a file>" >&2; exit 64; }
	@python -m spillway_lab lab --scenario $(or $(wildcard $(SCENARIO)),lab/scenarios/$(SCENARIO).yaml) --out $(HOME_DIR)/results

stack: setup ## the two-cluster stack and its pods, until interrupted
	@python -m spillway_lab stack --scenario lab/scenarios/two-clusters.yaml

replay: setup ## TRACES='files': real traces (Jaeger JSON) through the same way
	@test -n "$(TRACES)" || { echo "usage: make replay TRACES='<Jaeger JSON files, .gz allowed>'" >&2; exit 64; }
	@python -m spillway_lab replay --setting lab/replays/two-clusters.yaml $(TRACES)

clean: ## remove what set-up and runs have made
	rm -rf .spillway

##@ Test

test: check test-unit test-component test-e2e ## everything CI runs

test-unit: setup ## no server (4 min)
	python -m pytest -q -n 2 --dist worksteal -m "not component and not e2e and not matrix and not optima and not deploy" contracts infra collectors wasm streams optimizer rule-publisher/publisher lab tests
	cd contracts/go && go test ./...
	cd collectors/kafkapartitionexporter && go test ./...
	cd collectors/kubeletcpureceiver && go test ./...
	cd collectors/queueguardextension && go test ./...
	cd lab/emulator && go test ./...
	cd lab/generator && go test ./...
	cd rule-publisher/relay && go test ./internal/...
	cd wasm && cargo test --quiet --locked
	cd wasm/fuzz && cargo test --quiet --locked
	cd streams/native && cargo test --quiet --locked -p spillway-spans
	cd streams/native/fuzz && cargo test --quiet --locked
	cd lab/native && cargo test --quiet --locked -p spillway-simulation

test-component: setup ## each box against the real servers beside it
	tools/bring etcd kube-apiserver promtool helm kubeconform schemas nats-server-config-reloader \
	  prometheus-nats-exporter redis_exporter
	python -m pytest -q $(SIDE_BY_SIDE) -m component streams rule-publisher/publisher tests optimizer collectors infra wasm lab
	cd rule-publisher/relay && go test -count=1 -timeout 30m ./featuretests/... ./component

test-e2e: setup ## the whole loop, and its faults: real processes are killed under load
	python -m pytest -q -m e2e tests/e2e --ignore tests/e2e/test_shadow.py --ignore tests/e2e/test_order.py
	python -m pytest -q -m e2e tests/e2e/test_shadow.py  # a stack of its own

CHART_TESTS := charts global_chart global_chart_network global_chart_processes global_chart_refusals \
  cluster_chart cluster_chart_refusals cluster_chart_values istio_chart bundled one_api_server
test-deploy: setup ## Terraform's modules, the charts, and the example applied to real API servers (20 min; the first time builds tools for an hour)
	tools/bring etcd kube-{apiserver,controller-manager,scheduler} kubectl kwok helm kubeconform schemas pilot-discovery{,-1.30} \
	  nats-server-config-reloader buildx crane tofu tofu-1.8 terraform-1.8 terraform-provider-{helm,kubernetes,random,tls}
	python -m pytest -q tests/deploy $(CHART_TESTS:%=tests/component/test_%.py)

test-long: test-matrix test-order test-optima fuzz soak-relay ## what takes too long for every commit; CONTRIBUTING.md says why for each

test-matrix: setup ## every fault of every part, and an outage under the shipped guardrails (about 30 min); SPILLWAY_FAULTS='relay;Redis, lie' alone
	python -m pytest -q -s -m matrix tests/e2e

test-order: setup ## the order of policies under a small load, live (6 min); no conclusion on a busy machine
	python -m pytest -q -rs -m e2e tests/e2e/test_order.py

test-optima: setup ## the optimizer's answers against brute force, 10 000 tiny problems (about 10 min); SPILLWAY_SEEDS=0-99 for others
	OMP_NUM_THREADS=1 python -m pytest -q -s -m optima optimizer/tests/unit/test_optima.py

fuzz: setup ## every parser of the filter and of the spans, guided by coverage; FUZZ_SECONDS=20 each, FUZZ_TARGETS='class ...' alone
	@set -e; for target in $(FUZZ_TARGETS); do \
	  [ -d wasm/fuzz/seeds/$$target ] || [ -d streams/native/fuzz/seeds/$$target ] || \
	    { echo "FUZZ_TARGETS: $$target: no seeds in wasm/fuzz or streams/native/fuzz" >&2; exit 64; }; \
	done; for folder in wasm/fuzz streams/native/fuzz; do \
	  named=$$(cd $$folder/seeds && ls -d $(or $(FUZZ_TARGETS),*) 2>/dev/null) || [ -n "$$named" ] || continue; \
	  SPILLWAY_FUZZ_SECONDS=$(or $(FUZZ_SECONDS),20) tools/fuzzing/run $$folder $$named; \
	done

soak-relay: setup ## a day's worth of rulesets through one relay, as fast as it takes them: memory stays flat
	@cd rule-publisher/relay && SPILLWAY_SOAK_VERSIONS=5760 go test -count=1 -v -timeout 30m -run 'TestSoak$$' ./featuretests/lifecycle

##@ Check and generate

check: setup ## formatting, lint, stale generated code, imports between boxes, artefacts
	tools/bring golangci-lint
	@tools/check

generate: setup ## constants and messages from contracts/
	python contracts/generate/names.py
	python contracts/generate/rows.py
	contracts/generate/protos.sh

lock: setup ## pin every Python requirement with hashes
	python -m uv pip compile -q --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  $(PYTHON_BOXES:%=%/pyproject.toml) requirements-dev.in -o requirements-dev.txt
	@for box in $(filter-out contracts/python,$(PYTHON_BOXES)); do \
	  python -m uv pip compile -q --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	    -c requirements-dev.txt contracts/python/pyproject.toml $$box/pyproject.toml -o $$box/requirements.txt; done

##@ Measure (each ends in one JSON line)

RESULTS := $(HOME_DIR)/results
experiments: setup ## the experiments of the papers, those that have no results yet; ONLY='how-much threshold', KIND=simulated, AGAIN=1 for all, LIST=1 to see them
	@python -m spillway_lab experiments $(ONLY) --out $(RESULTS) $(if $(KIND),--kind $(KIND)) $(if $(AGAIN),--again) $(if $(LIST),--list)

report: setup ## docs/results/ from what the experiments have found: a page, and the same as Markdown
	@python -m spillway_lab report --results $(RESULTS) --out docs/results

accuracy-traces: setup ## TRACES='files': curves of recorded traces against the recording, load by load
	@test -n "$(TRACES)" || { echo "usage: make accuracy-traces TRACES='<Jaeger JSON files, .gz allowed>'" >&2; exit 64; }
	@python streams/accuracy/traces.py $(TRACES)

accuracy-ratios: setup ## curves that share a ratio against curves fitted class by class, on simulated queues (1 min)
	@python streams/accuracy/ratios.py

accuracy-lab: setup ## learned models against an application whose queues are known (5 min, wants a quiet machine)
	@python -m spillway_lab accuracy --scenario lab/accuracy/ladder.yaml

bench-optimizer: setup ## the fast solver against one linear programme on SLATE's grid, large meshes, a warm start (about 9 min); BENCH_FLAGS=--published: the paper's largest instance alone (10 s)
	@python optimizer/benchmarks/optimizer.py $(BENCH_FLAGS)

bench-streams: setup ## spans per CPU second from Kafka to ClickHouse, beside the collector's spanmetrics (about 5 min)
	@python streams/benchmarks/streams.py $(BENCH_FLAGS)

bench-admission: setup ## spans per CPU second from a cluster's topic to the topic of all clusters (BENCH_FLAGS)
	@python streams/benchmarks/admission.py $(BENCH_FLAGS)

bench-freshness: setup ## a span ended -> the load board has it
	@python streams/benchmarks/freshness.py $(BENCH_FLAGS)

bench-trickle: setup ## processor time of each job for few and small messages, 1 000 spans/s and none (2 min, BENCH_FLAGS)
	@python streams/benchmarks/trickle.py $(BENCH_FLAGS)

bench-footprint: setup ## processor time of every process of the stack, idle and at 1 000 spans/s (about 4 min, BENCH_FLAGS)
	@python -m spillway_lab footprint --scenario lab/benchmarks/footprint.yaml $(BENCH_FLAGS)

bench-reaction: setup ## a step of the load -> new weights in Envoy, stage by stage (about 6 min, wants a quiet machine; BENCH_FLAGS)
	@python -m spillway_lab reaction --scenario lab/benchmarks/reaction.yaml $(BENCH_FLAGS)

bench-simulator: setup ## simulated requests per second and core, by application (BENCH_FLAGS)
	@python lab/benchmarks/simulator.py $(BENCH_FLAGS)

bench-collector: setup ## spans per second of one core, OTLP in to Kafka
	@python collectors/benchmarks/collector.py

bench-relay: setup ## 1 000 simulated Envoys of 50 services: publish to ACK, CPU, memory
	@cd rule-publisher/relay && go run ./benchmarks

bench-filter: setup ## what the filter adds to Envoy: latency, CPU, memory (about 5 min, wants a quiet machine)
	@python wasm/benchmarks/filter.py $(BENCH_FLAGS)

##@ Ship

images: ## REGISTRY=ghcr.io/example: every image by docker buildx, for amd64 and arm64, with SBOM and provenance (VERSION, PLATFORMS, PUSH=1, DRY_RUN=1)
	@tools/images

package: setup ## charts and the filter's module as OCI artefacts, with checksums, in dist/ (VERSION, REGISTRY, PUSH=1, PLAIN_HTTP=1)
	@tools/bring helm crane
	@tools/package
