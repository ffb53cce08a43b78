# Everything starts here: `make demo` and `make test` need nothing but git, make and Debian or Ubuntu.
.PHONY: help setup demo test check kernel guest ipvs e2e bench format shake clean
SHELL := /bin/bash
# Tests start hundreds of Python programs: without the files of bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin
# Namespaces need root; a user with sudo is asked once.
ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$(CURDIR)/.venv/bin:$(PATH):/usr/sbin:/sbin")
PYTEST := python -m pytest
# Tests of whole clusters whose subject is the way of a packet: they are run in every mode.
BY_MODE := $(addprefix tests/e2e/test_,road.py matrix.py dual_stack.py)

help: ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: ## install what is missing: Debian packages, .venv, kubectl
	@scripts/setup

demo: setup ## bring up three nodes and walk the road of a packet, with real packets
	@$(ROOT) clusterip demo
	@echo; echo 'The commands are in .venv/bin:  export PATH=$$PWD/.venv/bin:$$PATH'

check: export CLUSTERIP_EXAMPLES ?= few
check: setup ## the fast loop: format, lint, types, imports, pure tests
	ruff format --check src tests benchmarks scripts
	ruff check src tests benchmarks scripts
	mypy
	lint-imports
	$(PYTEST) -m "not kernel and not e2e" -n 2 tests

# They wait more than they work, so there are more of them than cores.
kernel: setup ## tests that load real rules and send real packets, each in its own namespaces
	$(ROOT) $(PYTEST) -m kernel -n 4 --ignore=tests/guest tests

# Of tests/guest what starts few programs: in a guest without KVM each takes most of a minute.
GUEST ?= $(addprefix tests/guest/test_ipvs_,away.py ipvsadm.py packets.py pages.py verify.py)
guest: setup ## IPVS mode with real packets; boots Debian's kernel where the running one has no IPVS
	$(ROOT) python -m tests.guest.guest --unless-here -- .venv/bin/python -m pytest -m kernel -p no:cacheprovider -n 2 $(GUEST)

IN_USER_MODE := python -m tests.guest.guest --unless-here --user-mode --memory 4096 --timeout 3600 --
ipvs: setup ## all of IPVS mode, clusters too; where the kernel has no IPVS, one is built first (not part of test)
	$(ROOT) env CLUSTERIP_PAGES=all CLUSTERIP_REQUESTS=10000 $(IN_USER_MODE) .venv/bin/python -m pytest -m kernel -p no:cacheprovider tests/guest
	$(ROOT) env CLUSTERIP_MODE=ipvs $(IN_USER_MODE) .venv/bin/python -m pytest -m e2e -p no:cacheprovider $(BY_MODE) tests/e2e/test_ipvs_mode.py

# Each of the two has a cluster of its own.
E2E := $(PYTEST) -m e2e -n 2 --dist loadfile
e2e: setup ## tests that bring up whole clusters: all in iptables mode, the way of a packet in the others too
	$(ROOT) $(E2E) tests
	$(ROOT) CLUSTERIP_MODE=nftables $(E2E) $(BY_MODE)
	$(ROOT) CLUSTERIP_MODE=ebpf $(E2E) $(BY_MODE)

test: export CLUSTERIP_EXAMPLES := many
test: setup ## all of it
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory kernel
	@$(MAKE) --no-print-directory guest
	@$(MAKE) --no-print-directory e2e

bench: setup ## the measured laws; prints ratios, asserts nothing; IPVS mode in the guest where the kernel has none
	@for bench in 'connect.py --modes iptables nftables ipvs ebpf' modes.py change.py load.py 'lost.py 10000' trace.py verify.py; do \
		echo "== $$bench"; $(ROOT) python benchmarks/$$bench || exit 1; done
	@echo '== every mode at every size where IPVS is; the guest is a user-mode kernel, built the first time'
	$(ROOT) $(IN_USER_MODE) .venv/bin/python benchmarks/connect.py --modes nftables ipvs ebpf iptables --seconds 120
	@echo '== every mode where IPVS is; in the guest, time is counted in instructions'
	$(ROOT) python -m tests.guest.guest --unless-here --count-instructions -- .venv/bin/python benchmarks/connect.py --sizes 1 1000 --seconds 4
	$(ROOT) python -m tests.guest.guest --unless-here --count-instructions -- .venv/bin/python benchmarks/modes.py --sizes 10 1000 --seconds 4

format: setup ## write the format that check asks for
	ruff format src tests benchmarks scripts
	ruff check --fix src tests benchmarks scripts

shake: setup ## run one test 100 times: make shake T=tests/store/test_sqlite.py
	for i in $$(seq 100); do $(ROOT) $(PYTEST) -x $(T) || exit 1; done

clean: ## take away what set-up and runs left
	-$(ROOT) clusterip down --all
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
