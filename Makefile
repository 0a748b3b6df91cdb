# Everything below needs a Rust toolchain, Python 3 and, for MySQL, Debian's apt or a `mysqld` on PATH.
# Whatever is fetched stays in .muster of this checkout.

# The binary by name, not its package: features are then those of the whole workspace, and nothing is compiled twice.
MUSTER := cargo run --quiet --bin local --
# Last, so that a tool of your own is preferred.
export PATH := $(PATH):$(CURDIR)/.muster/venv/bin
# More words for the test runner: make test ARGS='admission_is_idempotent'
ARGS ?=

.PHONY: help run demo watch test test-mariadb storm soak mutants forge-clients crash-matrix close-races check-template sizes clean
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start everything, land sample requests in a real repository, stay up until Ctrl-C
	@$(MUSTER) run

demo: ## The same, then stop: exits 0, or says what went wrong
	@$(MUSTER) demo

watch: ## Start everything with hot reload of the functions (cargo lambda watch)
	@$(MUSTER) watch

# A documentation test costs a link of its own crate, so rustdoc runs only where one is written.
test: ## Run all tests against a real MySQL (DATABASE_URL is used if set)
	@$(MUSTER) tools nextest
	@$(MUSTER) with-mysql -- cargo nextest run --workspace --no-tests=fail $(ARGS)
	@if grep -rqsE '^\s*//[/!] ```(rust)?$$' --include='*.rs' shared adapters functions local; then cargo test --quiet --workspace --doc; fi

test-mariadb: ## Run the tests of the database against a real MariaDB 10.11 (MARIADB_URL is used if set)
	@$(MUSTER) tools nextest
	@$(MUSTER) with-mariadb -- cargo nextest run --workspace --profile mariadb --no-tests=fail $(ARGS)

storm: ## 64 triggers x 500 rounds, admissions and settlements all at once; some minutes
	@$(MUSTER) tools nextest
	@rm -f .muster/storm.txt
	@$(MUSTER) with-mysql -- cargo nextest run --workspace --profile long --run-ignored only --no-capture -E 'test(=storm::at_full_size)'
	@cat .muster/storm.txt

soak: ## Histories against the reference model for SOAK_S seconds (300)
	@$(MUSTER) tools nextest
	@rm -f .muster/soak.txt
	@$(MUSTER) with-mysql -- cargo nextest run --workspace --profile long --run-ignored only --no-capture -E 'test(=model::soak)'
	@cat .muster/soak.txt

# Some minutes, most of them for building the copy once; with ARGS='S-claim' only the mutants whose ids begin so.
mutants: ## Take away each guard of our SQL and Rust, one at a time, and see the tests die that must
	@$(MUSTER) with-mysql -- $(MUSTER) mutants $(ARGS)

# `cargo test`, not nextest: the summary is the last line. CRASH_PARALLEL cells run at once, 8 unless it is set;
# CRASH_EVERY=10 runs one of ten.
crash-matrix: ## Kill every function at every boundary, after every answer of the forge; writes docs/CRASH_MATRIX.md (long)
	@$(MUSTER) with-mysql -- cargo test --quiet --workspace --test crashes -- --ignored --exact --nocapture killed::the_whole_crash_matrix

close-races: ## Let our close race the forge's merge 500 times, in every order
	@RACES=$${RACES:-500} $(MUSTER) with-mysql -- cargo test --quiet --workspace --test crashes -- --exact --nocapture close_races::no_merge_is_lost_in_any_order_of_close_and_merge

forge-clients: ## Take python-gitlab and glab through a merge request's life on the GitLab stand-in
	@$(MUSTER) tools clients
	@.muster/venv/bin/python local/python/forge_clients.py

check-template: ## Check template.yaml offline: cfn-lint, SAM, what SAM makes of it, checkov
	@$(MUSTER) tools stack lint
	@.muster/venv/bin/python local/python/check_template.py

# Some minutes on two cores, so it is no part of .ci/run; `make demo` builds and deploys the same functions there.
sizes: ## Build all functions for release with `sam build`, and print the sizes of their binaries
	@$(MUSTER) tools stack lint lambda
	@.muster/venv/bin/python local/python/check_template.py build

clean: ## Remove what was built, fetched and left behind
	@rm -rf .muster .aws-sam
	@cargo clean --quiet
