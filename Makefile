# pcmlab: `make demo` and `make test` do all the set-up themselves.
GO      ?= go
BIN     := bin
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
DIRTY   := $(shell test -z "$$(git status --porcelain 2>/dev/null | head -1)" && echo false || echo true)
LDFLAGS := -X github.com/pcmlab/pcmlab/internal/build.commit=$(COMMIT) -X github.com/pcmlab/pcmlab/internal/build.dirty=$(DIRTY)
# Tests of timing raise whole labs; they run after the others, one package at a time, so that they do not disturb each other.
LABPKGS := ./cmd/pcmlab/... ./inventory/vlab/... ./inventory/fabric/... ./nicbackends/softnic/...

export CGO_ENABLED = 0

.PHONY: all setup build demo regression test test-testbed check unit lab bench bench-fanout chaos fuzz mutants cross clean

all: build

setup: ## install what is missing (as root), or print the one line that does
	@.ci/setup

build: setup ## bin/pcmlab, and bin/pcmlab-nic, which loads handlers
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/pcmlab ./cmd/pcmlab
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/pcmlab-nic ./cmd/pcmlab-nic

demo: build ## raise the virtual lab and run the five-phase incast
	$(BIN)/pcmlab run playbooks/incast-3to1.yaml -i labs/virtual-4.yaml

regression: build ## the suite of playbooks/regression against its baselines; JUnit in regression-*.xml
	@status=0; for p in incast swift; do \
		$(BIN)/pcmlab run playbooks/regression/$$p.yaml -i playbooks/regression/lab.yaml --repeat 5 \
			--baseline playbooks/regression/baselines/$$p.json --junit regression-$$p.xml || status=$$?; \
	done; exit $$status

test: build check unit lab cross ## everything

test-testbed: setup ## tests over real kernels and the real traffic tool, where ../shared/testbed is (PCMLAB_TESTBED: its state)
	.ci/testbed

check: ## formatting, vet, changelog
	@test -z "$$(gofmt -l . )" || { echo "gofmt needed:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) mod tidy -diff

unit: ## tests that need no lab
	.ci/tests -timeout 15m $$($(GO) list ./... | grep -v -E '/(cmd/pcmlab|inventory/vlab|inventory/fabric|nicbackends/softnic)(/|$$)')

lab: ## tests that raise virtual labs
	.ci/tests -count=1 -p 1 -timeout 30m $(LABPKGS)

cross: ## the pushed binary on amd64 and arm64, the offline verbs on macOS
	GOOS=linux GOARCH=arm64 $(GO) build -o /dev/null ./cmd/pcmlab
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/pcmlab

bench: ## every benchmark, with the figures that docs/performance.md quotes
	$(GO) test -run '^$$' -bench . -benchtime=2s $$($(GO) list ./... | grep -v /cmd/)

bench-fanout: ## ten commands on twenty hosts: Ansible beside pcmlab, with the ratio (installs ansible-core)
	@command -v ansible-playbook >/dev/null || { test "$$(id -u)" = 0 || { echo "first: sudo apt-get install ansible-core" >&2; exit 1; }; \
		apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ansible-core >/dev/null; }
	$(GO) test -run '^$$' -bench Fanout -benchtime 3x ./inventory/remote

chaos: ## kill -9 of the orchestrator at CHAOS moments (200), in virtual labs: nothing may be left
	PCMLAB_CHAOS=$(or $(CHAOS),200) $(GO) test -count=1 -timeout 120m -v -run '^TestRun_chaos$$' ./cmd/pcmlab

fuzz: ## each fuzzer for FUZZTIME
	.ci/fuzz $(FUZZTIME)

mutants: ## each rule of RDCC off, one at a time: a test must notice
	.ci/mutants

clean:
	rm -rf $(BIN)
