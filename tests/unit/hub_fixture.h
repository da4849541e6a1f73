/* What the tests of installs from a hub share: the small model of store_fixture.h on a server of
 * support/httpd.h, with limits that make short work of waiting. */
#ifndef TESTS_HUB_FIXTURE_H
#define TESTS_HUB_FIXTURE_H

#include "store_fixture.h"

#include "io/http.h"
#include "store/manifest.h"
#include "support/httpd.h"

#define HUB_COMMIT "0123456789abcdef0123456789abcdef01234567"

/* Pieces of 1 KiB: a range of 4 KiB takes several requests, some of them at once. */
static inline struct http_options hub_limits(void)
{
    return (struct http_options){.connections = 3,
                                 .buffer_bytes = 5 * 1024,
                                 .head_bytes = 512,
                                 .connect_ms = 30000,
                                 .stall_ms = 30000,
                                 .whole_ms = 120000,
                                 .attempts = 3,
                                 .backoff_ms = 1,
                                 .retry_after_max_ms = 5000};
}

static inline const char *hub_url(const struct httpd *s)
{
    static char url[64];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", s->port);
    return url;
}

/* FILE.sha256 beside each shard, for X-Linked-ETag. */
static inline void hub_write_digests(const char *dir)
{
    static const char *const SHARDS[] = {"one.safetensors", "two.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        char name[64], hex[SHA256_HEX_BYTES];
        size_t n;
        unsigned char *bytes = fx_read(fx_path(dir, SHARDS[i]), &n);
        assert_ok(sha256_hex(bytes, n, hex, err));
        free(bytes);
        (void)snprintf(name, sizeof name, "%s.sha256", SHARDS[i]);
        fx_text(dir, name, hex);
    }
}

struct hub_run {
    const char *url, *revision;
    struct http_options limits;
    sluice_install_options install;
    uint64_t range_bytes;
};

static inline struct hub_run hub_run_to(const char *output, const struct httpd *s)
{
    return (struct hub_run){
        .url = hub_url(s), .limits = hub_limits(), .install = {.output_dir = output}, .range_bytes = 4096};
}

static inline sluice_status hub_install(const struct hub_run *run, sluice_install_report *report,
                                        sluice_error *err)
{
    struct source *source;
    const struct hub_options hub = {
        .base_url = run->url, .repo = "owner/small", .revision = run->revision, .limits = &run->limits};
    TRY(source_open_hub(&source, &hub, err));
    sluice_status status =
        store_install_from(source, &run->install, &(struct install_limits){.range_bytes = run->range_bytes},
                           fx_recipe, report, err);
    source_close(source);
    return status;
}

/* Proxies of the tester's environment must not stand between the tests and loopback. */
static inline void hub_unset_proxies(void)
{
    static const char *const NAMES[] = {"http_proxy",  "https_proxy", "all_proxy", "HTTP_PROXY",
                                        "HTTPS_PROXY", "ALL_PROXY",   "no_proxy",  "NO_PROXY"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        (void)unsetenv(NAMES[i]);
}

static inline void hub_wipe(const char *output)
{
    static const char *const SUFFIXES[] = {"", ".partial", ".resume.json", ".resume.json.tmp",
                                           ".install.lock"};
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s%s", output, SUFFIXES[i]);
        assert_ok(file_remove_tree(path, err));
    }
}

#endif
