# The front door. Every target sets up what it needs; CI runs these and nothing else.

# Pinned: a new release must not turn a green tree red.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s
IMAGE    ?= podrun:dev
ROUNDS   ?= 200
FOR      ?= 1h
KINDS    ?= embedded
SEEDS    ?= 2000
DEBIAN   ?= $(if $(CORE),13,12 13)

export CGO_ENABLED ?= 0
# The same flags everywhere, so that tests and binary share what is compiled.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath

.DEFAULT_GOAL := help
.PHONY: help demo build shim test race simulate simulate-check lint update verify e2e kubeadm security security-check vm crash bench fuzz oracle soak sbom reproducible deb image

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## run a job and a web pod here, kill the pod, watch it come back, clean up (root)
	@scripts/deps.sh runc busybox
	@scripts/demo.sh

# The shim's program is in podrun, compressed. It is the same in each commit that does not change it. containerd builds
# its own without gRPC too. What compresses it runs on this machine, whatever podrun is built for.
shim:
	@mkdir -p bin
	go build -buildvcs=false -tags no_grpc -ldflags "-s -w" -o bin/containerd-shim-runc-v2 ./internal/embedded/runcshim/program
	@GOOS= GOARCH= go run ./hack/compress bin/containerd-shim-runc-v2 internal/embedded/containerd-shim-runc-v2.zst

# Go stamps no commit where .git is a file, as in a worktree; there git is asked.
build: shim ## build bin/podrun
	go build -buildvcs=auto -tags ownshim -ldflags "-s -w$$([ ! -f .git ] || git describe --always --dirty --abbrev=40 --exclude '*' | sed 's/^/ -X podrun.io\/podrun\/internal\/cli\/version.commit=/')" -o bin/podrun .

test: shim ## run all tests; as root also those with real containers
	@scripts/deps.sh runc busybox dbus-daemon xmllint promtool nft iptables-nft cni-plugins
	@# What is built once for all must not count as a test's time; where it cannot be had, the tests say so.
	@[ "$$(id -u)" != 0 ] || for kind in stock debian; do scripts/containerd.sh $$kind >/dev/null || true; done
	@# Real containers on a slow and busy machine take their time. make lint vets.
	go test -vet=off -tags ownshim -timeout 20m -parallel 6 ./...

# What runs whole containerds is left out: their code, not podrun's, would be what is slowed down. So are long tests of
# what has one goroutine.
race: ## run the tests under the race detector
	@scripts/deps.sh runc busybox gcc dbus-daemon xmllint nft iptables-nft cni-plugins
	@# Each process would sleep for a second at its end; the command's tests start hundreds.
	GORACE=atexit_sleep_ms=50 CGO_ENABLED=1 go test -vet=off -p 4 -parallel 6 -race -skip '^(TestCompressedAsPlain|TestSegmentsTakeLittleMemory)$$' \
		$$(go list ./... | grep -vE '/(hack/bench|e2e|embedded|testcontainerd|testimage|mkimage|vm|internal|internal/manifest|cronjobs)$$|/runtime/containerd(/|$$)')

simulate: ## run SEEDS (2000) random histories under every fault in virtual time; SEED=n repeats one, with a trace
	@if [ -n "$(SEED)" ]; then scripts/simulate.sh seed $(SEED); else scripts/simulate.sh $(SEEDS); fi

simulate-check: ## put known defects back and check that the simulation finds each within SEEDS (2000)
	@scripts/simulate-check.sh $(SEEDS)

lint: ## check format, vet and golangci-lint
	@files=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$files" ] || { echo "not gofmt'ed:" $$files; exit 1; }
	go vet ./...
	go run $(GOLANGCI) run

update: ## write what is generated anew: golden files, docs, deps.txt
	@scripts/update.sh

verify: update ## check that what is generated is up to date
	git diff --exit-code
	@new=$$(git ls-files --others --exclude-standard); [ -z "$$new" ] || { echo "generated but not checked in:" $$new; exit 1; }

e2e: build ## run podrun end to end on the embedded, a stock and Debian's containerd, and in a container (root); CORE=1 for a part
	@scripts/deps.sh runc busybox docker-registry prometheus dbus-daemon chromium
	@CORE=$(CORE) scripts/e2e.sh

kubeadm: build ## run the manifests that kubeadm writes, with Kubernetes' own programs, which it builds (root; 15 minutes at first)
	@scripts/deps.sh runc busybox ip
	@scripts/kubeadm.sh

security: build ## run every attack that docs/security.md names, on real containers (root); CORE=1 leaves out those of make test
	@scripts/deps.sh runc busybox dbus-daemon
	@CORE=$(CORE) scripts/security.sh

security-check: ## take the defence against each attack away and check that its test fails; ONLY="NAME…" for some (root)
	@scripts/deps.sh runc busybox dbus-daemon
	@scripts/security-check.sh $(ONLY)

vm: deb ## test the package on whole machines in qemu, Debian 12 and 13 (root); RUN=TestName, DEBIAN=13, CORE=1 for a part, RECORD=1 writes docs/platforms.md
	@scripts/deps.sh qemu-system-x86_64 mke2fs mmdebstrap busybox
	@FLAGS="$(if $(CORE),-short) $(FLAGS)" scripts/vm.sh "$(DEBIAN)" "$(RUN)"

crash: build ## run ROUNDS (200) random rounds of the crash matrix on each containerd in KINDS (root)
	@scripts/deps.sh runc busybox
	@scripts/crash.sh $(ROUNDS) $(KINDS)

soak: build ## churn pods on real containers for FOR (1h) and see that nothing grows (root)
	@scripts/deps.sh runc busybox
	PODRUN_E2E=1 PODRUN_SOAK=$(FOR) go test ./e2e -run TestSoak -count=1 -timeout 24h -v

bench: build ## measure podrun against containerd alone (root); UPDATE=1 writes docs/benchmarks.md
	@scripts/deps.sh runc busybox chromium
	@scripts/bench.sh

fuzz: ## fuzz each fuzz target for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

oracle: ## compare podrun's verdict on thousands of manifests with Kubernetes' own code; writes docs/oracle.md
	@scripts/oracle.sh

sbom: build ## write bin/podrun.cdx.json, the CycloneDX SBOM of bin/podrun
	@scripts/sbom.sh

reproducible: ## build the commit in two directories and check that binary, SBOM and package are the same bytes
	@scripts/reproducible.sh

deb: sbom ## build the Debian package of bin/podrun, with man pages, completions, the systemd unit and the SBOM
	@scripts/deb.sh

image: build ## build the container image IMAGE with docker, podman or buildah; BASE=… for another base
	@scripts/image.sh $(IMAGE) $(BASE)
