# One CGO_ENABLED for build, vet and test: each value compiles SQLite anew.
export CGO_ENABLED = 0

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# -s -w: no symbol table and no debugger's notes, which are 29 % of the size;
# panics and profiles name functions and lines all the same.
LDFLAGS  = -ldflags "-s -w -X main.version=$(VERSION)"
TEMPL    = go tool -modfile=tools/go.mod templ
# Those that take longest begin first, the browser's tests before all.
PACKAGES ?= ./e2e ./cmd/outboxweb ./internal/store ./internal/handlers ./internal/runs ./internal/worker ./...
# Most packages are done in seconds then, and those listed before must have begun: one more at a time.
SHORT     = -short -p $(shell echo $$(($$(nproc) + 2)))

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build and serve on 127.0.0.1:8080, with a sample journal and few attempts
	./bin/outboxweb serve --listen 127.0.0.1:8080 --sample --max-attempts 3 --retry-base 500ms

.PHONY: shop
shop: ## run the example service on 127.0.0.1:8090, the tutorial in examples/shop
	go run ./examples/shop

.PHONY: build
build: ## build bin/outboxweb
	go build -trimpath $(LDFLAGS) -o bin/outboxweb ./cmd/outboxweb

.PHONY: test
test: ## install what the tests need and is missing, then vet and test everything, or PACKAGES; what is heavy, a little of it
	.ci/test-packages
	go vet ./...
	.ci/test $(SHORT) -timeout 60m $(PACKAGES)

.PHONY: test-all
test-all: ## test everything in every way, on both databases
	.ci/test-packages
	.ci/test -timeout 80m $(PACKAGES)

.PHONY: test-ci
test-ci: ## test everything on both databases, and of what is heavy a little, as in make test
	.ci/test-packages
	TEST_SIZE=little .ci/test -timeout 80m $(PACKAGES)

.PHONY: soak
soak: ## test everything with all its random histories, kills and hostile texts (hours)
	.ci/test-packages
	TEST_SIZE=soak .ci/test -timeout 5h $(PACKAGES)

# The packages with tests of both databases, and all but those of the whole program.
BOTH  = $(shell grep -rl --include='*_test.go' '/internal/dbtest"' . | xargs -n 1 dirname | sort -u)
UNITS = $(shell go list ./... | grep -v '/e2e$$')

.PHONY: test-sqlite
test-sqlite: ## test-all without e2e, on SQLite alone
	.ci/test-packages
	TEST_DB=sqlite .ci/test -timeout 80m $(UNITS)

.PHONY: test-postgres
test-postgres: ## what of test-all needs PostgreSQL, without e2e
	.ci/test-packages
	TEST_DB=postgres .ci/test -timeout 80m $(BOTH)

.PHONY: test-race
test-race: ## test everything with the race detector
	.ci/test-packages
	CGO_ENABLED=1 .ci/test -race -timeout 80m $(PACKAGES)

FUZZTIME ?= 60s
.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME each, one after another
	FUZZTIME=$(FUZZTIME) .ci/fuzz

.PHONY: bench
bench: build ## measure append and drain on this disk, beside the bare driver
	go -C tools/bench build -o ../../bin/bare ./bare
	@./bin/bare

.PHONY: bench-peers
bench-peers: build ## measure batches of appends beside queues of other libraries, on PostgreSQL too if PEERS_DB is the URL of an empty database
	go -C tools/bench/peers build -o ../../../bin/peers .
	@./bin/peers -db '$(PEERS_DB)'

.PHONY: bench-steady
bench-steady: ## measure single appends at a steady rate over HTTP, on the server that runs on 127.0.0.1:8080
	go -C tools/bench run ./steady

BENCH_ROWS ?= 10000000
.PHONY: bench-latency
bench-latency: ## measure how long single appends take until answered and until applied, at two loads, on both databases
	go test ./internal/worker -run '^$$' -bench AppendToApplied -benchtime 5s

.PHONY: bench-cost
bench-cost: ## compare what projections cost, as their pages say, with a processor profile of the same drain on SQLite, and fail beyond a tenth
	go test ./internal/worker -run '^$$' -bench Cost -benchtime 1x -db sqlite

.PHONY: bench-rebuild
bench-rebuild: ## measure a rebuild of 1,000,000 events over 2,000 campaigns, and what it costs others (takes minutes)
	go test ./cmd/outboxweb -run '^$$' -bench Rebuild -benchtime 1x -bench.events 1000000 -bench.rebuilt 2000 -timeout 30m

.PHONY: bench-find
bench-find: ## measure searches among 1,000,000 campaigns beside one without a text, on both databases
	go test ./internal/handlers -run '^$$' -bench Find -benchtime 20x -timeout 30m

.PHONY: bench-verify
bench-verify: ## measure verifications that find wrong rows beside clean ones, and fail beyond three times as long, on both databases
	go test ./internal/runs -run '^$$' -bench Verify -benchtime 2x -timeout 30m

.PHONY: bench-timetravel
bench-timetravel: ## measure steps through a campaign of 100,000 events beside a plain replay, and fail beyond 100 ms, on both databases
	go test ./internal/timetravel -run '^$$' -bench Step -benchtime 5x -timeout 30m

.PHONY: bench-publish
bench-publish: ## measure the made and the recorded journal on their way to five files at a time
	go test ./internal/publishing -run '^$$' -bench FanOut -benchtime 5x -db sqlite

.PHONY: bench-intake
bench-intake: ## measure moving 50,000 rows to the journal beside the bare driver, and what writers notice of it, on both databases
	go test ./internal/intake -run '^$$' -bench . -benchtime 3x -timeout 30m

.PHONY: bench-console
bench-console: ## measure what twenty open overviews cost beside BENCH_ROWS rows (takes minutes and 6 GB)
	go test ./cmd/outboxweb -run '^$$' -bench Tabs -benchtime 1x -bench.rows $(BENCH_ROWS) -bench.real 1700 -timeout 30m

.PHONY: bench-slow
bench-slow: ## measure pages beside 500 connections that are slow in five ways
	go test ./cmd/outboxweb -run '^$$' -bench Slow -benchtime 1x -timeout 10m

.PHONY: bench-paint
bench-paint: ## measure how long pages take from the click to their first paint, beside BENCH_ROWS rows in 100,000 campaigns (takes minutes and 6 GB, needs chromium)
	go test ./cmd/outboxweb -run '^$$' -bench Paint -benchtime 7x -bench.rows $(BENCH_ROWS) -bench.campaigns 100000 -bench.real 5 -timeout 30m

.PHONY: bench-append-hostile
bench-append-hostile: ## measure what appends of 16 MiB of any shape cost in memory and other writers' time, and fail beyond limits
	go test ./cmd/outboxweb -run '^$$' -bench HostileAppend -benchtime 3x -timeout 10m

.PHONY: bench-large
bench-large: ## measure how far a server grows while it drains large events, beside limits (takes minutes and 26 GB)
	go test ./cmd/outboxweb -run '^$$' -bench LargeEvents -benchtime 1x -timeout 60m

.PHONY: bench-compare
bench-compare: ## measure this work tree beside revision BASE, every row or those with ONLY in their name, and fail if something is slower (takes 5 minutes)
	go -C tools/bench build -o ../../bin/benchcompare ./compare
	@./bin/benchcompare -base '$(BASE)' -only '$(ONLY)'

.PHONY: e2e
e2e: ## run the black-box tests in a real browser
	.ci/test-packages
	.ci/test -timeout 80m ./e2e/...

.PHONY: screenshots
screenshots: ## take the README's pictures anew, in docs/ (needs chromium)
	go test ./e2e -tags shots -run TestPictures -count=1 -args -pictures ../docs

.PHONY: generate
generate: ## generate the Go code of the templates, the API's document from its routes and types, the list of the Go package's names, and the files in documents
	$(TEMPL) generate -path web/templates
	go test . -count=1 -run '^TestAPI_isTheAcceptedOne$$' -db sqlite -update
	go test ./internal/handlers -count=1 -run '^TestDocument_isTheOneGenerated$$' -db sqlite -update
	go test ./docs -count=1 -run '^TestDocuments_includeFiles$$' -update

.PHONY: vendor
vendor: ## copy the browser libraries pinned in .ci/web to web/static/vendor (needs npm)
	.ci/vendor-web

.PHONY: lint
lint: ## vet and staticcheck
	go vet ./...
	go tool -modfile=lint/go.mod staticcheck ./...
	go -C tools/bench vet ./...

.PHONY: lint-api
lint-api: ## check the API's document by Redocly's recommended rules (needs npx and the network)
	npx --yes @redocly/cli@2.77.0 lint --extends recommended internal/handlers/openapi.json

.PHONY: rooms
rooms: ## print the lines of every room beside tools/budget, or beside revision BASE
	@go run tools/rooms/main.go -base '$(BASE)'

.PHONY: budget
budget: ## grant every room in tools/budget what it has now; the commit says why
	@go run tools/rooms/main.go -grant

.PHONY: verify
verify: ## check generated files, go.mod and vendored files, and that the tests pass in a clone that stands alone
	.ci/verify

PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
.PHONY: release
release: build ## build dist/outboxweb-VERSION-OS-ARCH for every platform, with completions, notices and checksums
	rm -rf dist && mkdir -p dist/completions
	for p in $(PLATFORMS); do \
		GOOS=$${p%/*} GOARCH=$${p#*/} go build -trimpath -buildvcs=false $(LDFLAGS) -o dist/outboxweb-$(VERSION)-$${p%/*}-$${p#*/} ./cmd/outboxweb || exit 1; done
	for shell in bash zsh fish; do ./bin/outboxweb completion $$shell > dist/completions/outboxweb.$$shell || exit 1; done
	cp LICENSE THIRD_PARTY_NOTICES.md dist/
	cd dist && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | sed 's#^\./##' | xargs sha256sum > SHA256SUMS

.PHONY: reproducible
reproducible: ## build a release of this machine's platform twice, in two directories and with two caches, and compare (minutes)
	FRESH=1 .ci/reproducible

.PHONY: vuln
vuln: ## look for known vulnerabilities (needs the network)
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

.PHONY: ci
ci: ## everything that has to pass
	$(MAKE) --jobs=2 --output-sync=target verify lint
	$(MAKE) test-ci build
