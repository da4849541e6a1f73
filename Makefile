# Sluice. Everything that is made lands in $(BUILD); `make help` lists the targets.
#
# Variants (sanitizers, arm64, fuzzing) are this same file called again with another BUILD, CC and EXTRA, so a
# source file that is added is picked up by all of them. A change of flags rebuilds what it touches.

PREFIX     ?= /usr/local
DESTDIR    ?=
BUILD      ?= build
PKG_CONFIG ?= pkg-config
OPT        ?= -O2 -g
# The kernels gain from -O3, and lose nothing: no flag here may reorder floating-point arithmetic.
# GCC 12 unrolls a loop over a group of codes beyond the array's end, then warns about the code it made up.
KERNEL_OPT ?= -O3 -g $(if $(findstring clang,$(CC)),,-Wno-stringop-overflow)
# CFLAGS and LDFLAGS are the caller's. EXTRA is what a variant adds to both compiling and linking.
CFLAGS     ?=
EXTRA      ?=
WERROR     ?=
JOBS       ?= $(shell nproc)
FUZZ_SECONDS ?= 60
# Put before each test program: valgrind, qemu-aarch64, setarch.
RUNNER     ?=

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS)
endif
.DELETE_ON_ERROR:
.SECONDARY:

VERSION   := $(shell sed -n 's/^.define SLUICE_VERSION "\(.*\)"/\1/p' include/sluice.h)
LIB_PKGS  := jansson libcrypto libpcre2-8 libutf8proc liburing libcurl hwloc
CLI_PKGS  := libedit
TEST_PKGS := cmocka

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
# No contraction: the reference arithmetic is defined operation by operation (docs/design.md, section 4).
ALL_CFLAGS := -std=c17 -D_GNU_SOURCE $(WARN) -ffp-contract=off -fno-math-errno -pthread -Iinclude -Isrc \
	$(shell $(PKG_CONFIG) --cflags $(LIB_PKGS) $(CLI_PKGS) 2>/dev/null) $(EXTRA) $(CFLAGS)
ALL_LDFLAGS := -pthread $(EXTRA) $(CFLAGS) $(LDFLAGS)
LIBS      := $(shell $(PKG_CONFIG) --libs $(LIB_PKGS) 2>/dev/null) -lm
CLI_LIBS  := $(shell $(PKG_CONFIG) --libs $(CLI_PKGS) 2>/dev/null)
TEST_LIBS := $(shell $(PKG_CONFIG) --libs $(TEST_PKGS) 2>/dev/null)

LIB_SRC   := $(sort $(wildcard src/*/*.c src/*/*/*.c))
CLI_SRC   := $(sort $(wildcard cli/*.c))
UNIT_SRC  := $(sort $(wildcard tests/unit/*.c))
FUZZ_SRC  := $(sort $(wildcard tests/fuzz/fuzz_*.c))
BENCH_SRC := $(sort $(wildcard bench/*.c))
ALL_C     := $(LIB_SRC) $(CLI_SRC) $(UNIT_SRC) $(BENCH_SRC) $(sort $(wildcard tests/fuzz/*.c))
ALL_H     := $(sort $(wildcard include/*.h src/*/*.h src/*/*/*.h cli/*.h tests/*/*.h tests/*/*/*.h bench/*.h))

LIB_OBJ   := $(LIB_SRC:%.c=$(BUILD)/obj/%.o)
CLI_OBJ   := $(CLI_SRC:%.c=$(BUILD)/obj/%.o)
# Unit tests link a library of their own, with the fault hook (base/fault.h) compiled in.
FAULT_OBJ := $(LIB_SRC:%.c=$(BUILD)/fault/%.o)
UNITS     ?= $(UNIT_SRC:tests/unit/%.c=%)
FUZZ_BIN  := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/fuzz/%)
REPLAY_BIN := $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(BUILD)/replay/%)
BENCH_BIN := $(BENCH_SRC:bench/%.c=$(BUILD)/bench/%)

all: $(BUILD)/sluice $(BUILD)/libsluice.a ## build the command and the library (the default)

help: ## list the targets and the variables
	@echo "Sluice $(VERSION). Targets:"
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14
	@echo "Variables: PREFIX DESTDIR BUILD CC CFLAGS LDFLAGS OPT JOBS WERROR=1 FUZZ_SECONDS=60"
	@echo "           RUNNER (put before each test program), UNITS=\"test_a test_b\" (for make unit)"

# ---- building ----

# Compared on every run, rewritten only when different: what depends on it is rebuilt when flags change.
# mkdir as a make function, because $(file) is expanded before the recipe's first line runs.
$(BUILD)/flags: FORCE
	@$(shell mkdir -p $(@D))$(file >$@.new,$(CC) $(OPT) | $(KERNEL_OPT) | $(ALL_CFLAGS) | $(ALL_LDFLAGS) $(LIBS) $(CLI_LIBS) $(TEST_LIBS))
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# The same for the list of sources: an archive must lose the object of a file that was deleted.
$(BUILD)/sources: FORCE
	@$(shell mkdir -p $(@D))$(file >$@.new,$(LIB_SRC) $(CLI_SRC))
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

need-build need-test: need-%:
	@tests/deps.sh --check $*

$(BUILD)/obj/src/compute/%.o $(BUILD)/fault/src/compute/%.o: OPT := $(KERNEL_OPT)

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | need-build
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(OPT) -MMD -MP -c $< -o $@

$(BUILD)/fault/%.o: %.c $(BUILD)/flags | need-build need-test
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(OPT) -DSLUICE_FAULTS -MMD -MP -c $< -o $@

$(BUILD)/libsluice.a: $(LIB_OBJ)
$(BUILD)/libsluice-fault.a: $(FAULT_OBJ)
$(BUILD)/libsluice.a $(BUILD)/libsluice-fault.a: $(BUILD)/sources
	@rm -f $@
	$(AR) rcs $@ $(filter %.o,$^)

$(BUILD)/sluice: $(CLI_OBJ) $(BUILD)/libsluice.a $(BUILD)/sources
	$(if $(CLI_OBJ),,$(error cli/ holds no source file: the command cannot be built))
	$(CC) $(ALL_LDFLAGS) $(CLI_OBJ) $(BUILD)/libsluice.a -o $@ $(CLI_LIBS) $(LIBS)

$(BUILD)/unit/%: $(BUILD)/fault/tests/unit/%.o $(BUILD)/libsluice-fault.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $^ -o $@ $(TEST_LIBS) $(LIBS)

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(BUILD)/libsluice.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)

# A fuzz target linked with a main of ours: runs the kept corpus with any compiler.
$(BUILD)/replay/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay.o $(BUILD)/libsluice.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) $^ -o $@ $(LIBS)

$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(BUILD)/libsluice.a
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer $^ -o $@ $(LIBS)

# ---- running and checking ----

deps: ## install the Debian packages that building and checking need and that are missing
	@tests/deps.sh build test

demo: ## build, install demo.gturbo and ask it three questions (installs missing packages)
	@tests/deps.sh build
	@$(MAKE) --no-print-directory all
	$(BUILD)/sluice demo --output demo.gturbo

STEPS ?= includes unit replay cli
check: ## build and run every check: includes, unit, golden, fault injection, corpora, command line
	@tests/deps.sh build test
	@$(MAKE) --no-print-directory check-built

check-built: all $(UNITS:%=$(BUILD)/unit/%) $(REPLAY_BIN)
	@BUILD=$(BUILD) MAKE="$(MAKE)" tests/check.sh $(STEPS)

unit: $(UNITS:%=$(BUILD)/unit/%) ## build and run the unit tests alone
	@BUILD=$(BUILD) RUNNER="$(RUNNER)" tests/units.sh $(UNITS)

replay: $(REPLAY_BIN) ## run every fuzz target over its kept corpus
	@BUILD=$(BUILD) RUNNER="$(RUNNER)" tests/fuzz/replay.sh $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)

# The sub-make that a variant is: $(call variant,NAME,EXTRA FLAGS).
variant = $(MAKE) --no-print-directory BUILD=$(BUILD)/$(1) EXTRA="$(2)" OPT="-O1 -g" KERNEL_OPT="-O1 -g"
# Programs whose tests involve threads, and those that compute: names from what each source includes and calls.
# test_compute_isa calls kernels on one thread, for ten minutes under the thread sanitizer.
THREADED = $(filter-out test_compute_isa,$(shell tests/units.sh --reaching 'base/thread\.h|io/reads\.h|pthread_create|sluice_(engine|session)'))
HEAVY    = $(shell tests/units.sh --reaching 'compute/|experts/|sluice_(engine|session|check|bench|synth)')

# Ten and more times slower: tests take their short form (tests/unit/support/unit.h) and may take longer.
SLOW := SLUICE_TEST_SHORT=1 UNIT_TIMEOUT=1800

asan: ## run unit tests, corpora and command-line cases under address and undefined-behaviour sanitizers
	@tests/deps.sh build test
	+@$(call variant,asan,-fsanitize=address$(,)undefined -fno-sanitize-recover=all -fno-omit-frame-pointer) \
		check-built STEPS="unit replay cli"

tsan: ## run the threaded unit tests under the thread sanitizer
	@tests/deps.sh build test
	+@$(call variant,tsan,-fsanitize=thread) unit UNITS="$(THREADED)" $(SLOW) \
		RUNNER="$$(tests/units.sh --fixed-addresses)"

# Kernels and whole-model runs take minutes under valgrind and hold few allocations: the sanitizers have them. Valgrind
# (3.19) keeps its one lock while io_uring_enter waits, so that a test's second thread never comes to end the wait.
valgrind: ## run the unit tests of the parts that parse and allocate under valgrind
	@tests/deps.sh build test valgrind
	@SLUICE_TEST_NO_RING=1 $(MAKE) --no-print-directory unit $(SLOW) \
		UNITS="$(filter-out $(HEAVY),$(UNIT_SRC:tests/unit/%.c=%))" \
		RUNNER="valgrind -q --suppressions=tests/valgrind.supp --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect"

fuzz: ## run each fuzz target for FUZZ_SECONDS; findings go to build/fuzz/
	@tests/deps.sh build fuzz
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang OPT="-O1 -g" KERNEL_OPT="-O1 -g" \
		EXTRA="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" fuzz-run

fuzz-run: $(FUZZ_BIN)
	@BUILD=$(BUILD) JOBS=$(JOBS) FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run.sh $(FUZZ_SRC:tests/fuzz/fuzz_%.c=%)

ARM64_PKG_CONFIG := /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
# Whole-model runs of minutes natively take hours when every instruction is emulated.
LONG := test_speculate test_equality test_engine test_quality test_routes test_streaming test_synth
EMULATED_SKIP := $(foreach t,$(LONG),$(t)=whole-model runs take hours in an emulator;) \
	test_charged=its child would be measured with the emulator around it;

arm64: ## cross-compile for arm64 into build/arm64 and run the unit tests under qemu
	@tests/deps.sh build test arm64
	@PKG_CONFIG_LIBDIR=$(ARM64_PKG_CONFIG) $(MAKE) --no-print-directory BUILD=$(BUILD)/arm64 \
		CC=aarch64-linux-gnu-gcc AR=aarch64-linux-gnu-ar $(SLOW) UNITS_SKIP="$(EMULATED_SKIP)" \
		RUNNER="$$(tests/units.sh --arm64-runner)" all unit

bench: $(BENCH_BIN) ## build and run the programs of bench/
	$(if $(BENCH_BIN),,@echo "bench/ holds no program")
	@set -e; for b in $(BENCH_BIN); do echo "== $$b"; $$b; done

# ---- the code's form ----

TIDY_OK := $(ALL_C:%.c=$(BUILD)/lint/%.ok)

lint: ## clang-format and clang-tidy over everything
	@tests/deps.sh build test lint
	@$(MAKE) --no-print-directory -k form tidy

form:
	@clang-format --dry-run -Werror $(ALL_C) $(ALL_H)

tidy: $(TIDY_OK)

$(BUILD)/lint/%.ok: %.c $(ALL_H) .clang-tidy
	@mkdir -p $(@D)
	@echo "tidy $<"
	@clang-tidy --quiet $< -- $(ALL_CFLAGS) $(if $(filter tests/unit/%,$<),-DSLUICE_FAULTS) 2>$@.log \
		|| { cat $@.log >&2; exit 1; }
	@touch $@

format: ## rewrite every file as clang-format wants it
	clang-format -i $(ALL_C) $(ALL_H)

# ---- installing ----

# Where `sluice demo` looks, from its own place in bin/.
DEMO := share/sluice/demo
INSTALLED = bin/sluice lib/libsluice.a lib/pkgconfig/sluice.pc include/sluice.h share/man/man1/sluice.1 \
	share/bash-completion/completions/sluice share/zsh/site-functions/_sluice $(DEMO)

install: all ## install under $(DESTDIR)$(PREFIX)
	install -Dm755 $(BUILD)/sluice $(DESTDIR)$(PREFIX)/bin/sluice
	install -Dm644 $(BUILD)/libsluice.a $(DESTDIR)$(PREFIX)/lib/libsluice.a
	install -Dm644 include/sluice.h $(DESTDIR)$(PREFIX)/include/sluice.h
	sed 's,@PREFIX@,$(PREFIX),; s,@VERSION@,$(VERSION),; s,@REQUIRES@,$(LIB_PKGS),' packaging/sluice.pc.in \
		>$(BUILD)/sluice.pc
	$(BUILD)/sluice help --man >$(BUILD)/sluice.1
	$(BUILD)/sluice help --completion bash >$(BUILD)/sluice.bash
	$(BUILD)/sluice help --completion zsh >$(BUILD)/_sluice
	install -Dm644 $(BUILD)/sluice.pc $(DESTDIR)$(PREFIX)/lib/pkgconfig/sluice.pc
	install -Dm644 $(BUILD)/sluice.1 $(DESTDIR)$(PREFIX)/share/man/man1/sluice.1
	install -Dm644 $(BUILD)/sluice.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice
	install -Dm644 $(BUILD)/_sluice $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sluice
	install -d $(DESTDIR)$(PREFIX)/$(DEMO)
	install -m644 demo/dictionary-moe/* $(DESTDIR)$(PREFIX)/$(DEMO)

uninstall: ## remove what install put there
	cd $(DESTDIR)$(PREFIX) && rm -rf $(INSTALLED)
	cd $(DESTDIR)$(PREFIX) && rmdir --ignore-fail-on-non-empty share/sluice 2>/dev/null || true

clean: ## delete build/
	rm -rf $(BUILD)

, := ,
.PHONY: FORCE all help deps demo check check-built unit replay asan tsan valgrind fuzz fuzz-run arm64 bench lint form tidy \
	format install uninstall clean need-build need-test

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(FAULT_OBJ:.o=.d) $(UNIT_SRC:%.c=$(BUILD)/fault/%.d) \
	$(BENCH_SRC:%.c=$(BUILD)/obj/%.d) $(FUZZ_SRC:%.c=$(BUILD)/obj/%.d)
