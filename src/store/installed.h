/* What lies at an install's path: the public functions sluice_install_examine() and sluice_install_remove(),
 * and what a resume needs to know before it opens its source. */
#ifndef STORE_INSTALLED_H
#define STORE_INSTALLED_H

#include "base/err.h"

/* The revision that the journal of an interrupted install records, "" without one. */
sluice_status installed_partial_revision(const char *output_dir, char revision[64], sluice_error *err);

#endif
