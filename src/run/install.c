/* sluice_install: which source an install reads, and what is known of it beforehand. */
#include "store/install.h"
#include "io/http.h"
#include "run/engine.h"
#include "store/installed.h"

#include <stdio.h>
#include <string.h>

/* What was asked for, with the registry's knowledge. */
struct wanted {
    const char *repo, *revision, *index_sha256;
    char resumed[64]; /* the revision of the install that is resumed */
};

static sluice_status find_wanted(const sluice_install_options *o, struct wanted *wanted, sluice_error *err)
{
    sluice_model model;
    *wanted = (struct wanted){.repo = o->repo, .revision = o->revision};
    if (sluice_model_find(o->repo, &model)) {
        wanted->repo = model.repo;
        if (!o->revision)
            wanted->revision = model.revision;
        if (strcmp(wanted->revision, model.revision) == 0)
            wanted->index_sha256 = model.index_sha256;
    } else if (!strchr(o->repo, '/')) {
        return err_set(err, SLUICE_E_ARGUMENT,
                       "\"%.120s\" is no name of the registry (see sluice models) and no repository; give "
                       "OWNER/NAME",
                       o->repo);
    }
    /* A branch may have moved since; what was begun goes on from the commit that it was begun with. */
    if (o->resume && !o->revision && o->output_dir) {
        TRY(installed_partial_revision(o->output_dir, wanted->resumed, err));
        if (wanted->resumed[0] && !wanted->index_sha256)
            wanted->revision = wanted->resumed;
    }
    return SLUICE_OK;
}

static sluice_status install_from_hub(const sluice_install_options *o, sluice_install_report *report,
                                      sluice_error *err)
{
    struct wanted wanted;
    struct source *source;
    const struct http_options limits = {
        .token = o->token, .ca_file = o->ca_file, .connections = o->connections, .cancel = o->watch.cancel};
    if (o->connections > HTTP_CONNECTIONS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u connections were asked for, the most is %d",
                       o->connections, HTTP_CONNECTIONS_MAX);
    TRY(find_wanted(o, &wanted, err));
    const struct hub_options hub = {
        .base_url = o->base_url, .repo = wanted.repo, .revision = wanted.revision, .limits = &limits};
    TRY(source_open_hub(&source, &hub, err));
    const struct install_limits pinned = {.index_sha256 = wanted.index_sha256};
    sluice_status status = store_install_from(source, o, &pinned, engine_recipe_of, report, err);
    source_close(source);
    return status;
}

sluice_status sluice_install(const sluice_install_options *options, sluice_install_report *report,
                             sluice_error *err)
{
    if (!options || !options->repo)
        return store_install(options, engine_recipe_of, report, err);
    if (options->source_dir)
        return err_set(err, SLUICE_E_ARGUMENT, "both a directory and a repository were given; choose one");
    return install_from_hub(options, report, err);
}
