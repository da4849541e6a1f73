# Sluice: one Makefile, everything it makes lands in build/. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
AR      ?= ar
PKG_CONFIG ?= pkg-config
BUILD   ?= build
# BUILD variants (asan, tsan, arm64, faults) are this same file called again with other variables.

VERSION := $(shell sed -n 's/^\#define SLUICE_VERSION "\(.*\)"/\1/p' include/sluice.h)
PACKAGES := jansson libcrypto libpcre2-8 libutf8proc
CLI_PACKAGES := libedit
TEST_PACKAGES := cmocka

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror=implicit
OPT  ?= -O2 -g
# No contraction: the reference arithmetic is defined operation by operation (docs/design.md, section 4).
BASE_CFLAGS := -std=c17 -D_GNU_SOURCE $(WARN) -ffp-contract=off -fno-math-errno -pthread -Iinclude -Isrc -MMD -MP
CFLAGS ?=
EXTRA ?=

pkg_cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)
pkg_libs   = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
ALL_CFLAGS = $(BASE_CFLAGS) $(OPT) $(EXTRA) $(CFLAGS) $(call pkg_cflags,$(PACKAGES) $(CLI_PACKAGES) $(TEST_PACKAGES))
LIBS     = $(call pkg_libs,$(PACKAGES)) -pthread
CLI_LIBS = $(call pkg_libs,$(CLI_PACKAGES))
TEST_LIBS = $(call pkg_libs,$(TEST_PACKAGES))

LIB_SRC := $(sort $(wildcard src/*/*.c src/*/*/*.c))
CLI_SRC := $(sort $(wildcard cli/*.c))
UNIT_SRC := $(sort $(wildcard tests/unit/*.c))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/obj/%.o)
CLI_OBJ := $(CLI_SRC:%.c=$(BUILD)/obj/%.o)
# Unit tests link a library of their own, with the fault hook compiled in.
FAULT_OBJ := $(LIB_SRC:%.c=$(BUILD)/fault/%.o)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/unit/%)

.PHONY: all
all: $(BUILD)/sluice $(BUILD)/libsluice.a

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c $< -o $@

$(BUILD)/fault/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DSLUICE_FAULTS -c $< -o $@

$(BUILD)/libsluice.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/libsluice-fault.a: $(FAULT_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/sluice: $(CLI_OBJ) $(BUILD)/libsluice.a
	$(CC) $(OPT) $(EXTRA) $(CFLAGS) $(LDFLAGS) $^ -o $@ $(CLI_LIBS) $(LIBS)

$(BUILD)/unit/%: tests/unit/%.c $(BUILD)/libsluice-fault.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -DSLUICE_FAULTS $(LDFLAGS) $< $(BUILD)/libsluice-fault.a -o $@ $(TEST_LIBS) $(LIBS) -lm

.PHONY: unit
unit: $(UNIT_BIN)
	@set -e; for t in $(UNIT_BIN); do echo "== $$t"; $(RUNNER) $$t; done

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(FAULT_OBJ:.o=.d) $(UNIT_BIN:=.d)
