/* The drive behind an install: measured by sluice_probe(), remembered in INSTALL.probe.json beside the
 * install (never inside it, where it would be a foreign file), and recalled at open. What was measured on
 * another device or file system is ignored, and so is a file that cannot be read. */
#ifndef STORE_DRIVE_H
#define STORE_DRIVE_H

#include "base/err.h"

struct drive_choice {
    sluice_io engine; /* never SLUICE_IO_AUTO */
    bool direct;
    uint32_t depth;
};

/* False when nothing fitting is remembered, and *why_not (NULL is fine) tells it in static storage. */
bool drive_recall(const char *install_dir, struct drive_choice *choice, const char **why_not);

struct drive_limits {
    uint64_t
        file_bytes;  /* least size of a file that is measured, and of the one written where there is none */
    uint64_t row_ns; /* per row of the table */
};

/* sluice_probe() with other limits, for tests. */
sluice_status drive_probe(const char *dir, const struct drive_limits *limits, const sluice_watch *watch,
                          sluice_probe_report *report, sluice_error *err);

#endif
