/* An install of the demo checkpoint in a directory of its own, for tests that need a real one. */
#ifndef SUPPORT_DEMO_H
#define SUPPORT_DEMO_H

#include "io/file.h"
#include "sluice.h"

#include <stdio.h>
#include <stdlib.h>

#define DEMO_SOURCE "demo/dictionary-moe"

struct demo {
    char dir[64];     /* temporary */
    char install[96]; /* dir/demo.gturbo */
};

static struct demo demo;

/* cmocka's fixtures of a group: 0 when the install is ready; prints why not otherwise. */
static inline int demo_setup(void **state)
{
    sluice_error err = {0};
    (void)state;
    (void)snprintf(demo.dir, sizeof demo.dir, "%s", "/tmp/sluice-test-XXXXXX");
    if (!mkdtemp(demo.dir)) {
        perror("mkdtemp");
        return -1;
    }
    (void)snprintf(demo.install, sizeof demo.install, "%s/demo.gturbo", demo.dir);
    sluice_install_options options = {.source_dir = DEMO_SOURCE, .output_dir = demo.install};
    if (sluice_install(&options, NULL, &err) == SLUICE_OK)
        return 0;
    (void)fprintf(stderr, "installing the demo: %s\n", err.detail);
    return -1;
}

static inline int demo_teardown(void **state)
{
    (void)state;
    (void)file_remove_tree(demo.dir, NULL);
    return 0;
}

#endif
