/* The plan is true: what the kernel charges to a process that opens an engine, fills its context and answers
 * never exceeds the budget; and a cgroup whose limit is the budget neither kills nor throttles it. Needs a
 * memory cgroup (v1 or v2) in which a child can be made; without one the tests say so and are skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/demo.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONTEXT = 512, ANSWER = 8 };

static char group[640]; /* directory of the test's cgroup; empty: none can be made */
static bool unified;    /* cgroup v2 */

/* ---- the cgroup ---- */

static bool write_text(const char *name, const char *text)
{
    char path[768];
    (void)snprintf(path, sizeof path, "%s/%s", group, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool wrote = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return close(fd) == 0 && wrote;
}

/* The first number in a file, or the one after `key` at the start of a line. */
static bool read_number(const char *name, const char *key, uint64_t *value)
{
    char path[768], line[256];
    (void)snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        size_t n = key ? strlen(key) : 0;
        if (key && (strncmp(line, key, n) != 0 || line[n] != ' '))
            continue;
        *value = strtoull(line + n, NULL, 10);
        found = true;
    }
    if (file)
        (void)fclose(file);
    return found;
}

/* Where this process's memory cgroup is; false where there is none. */
static bool find_parent(char parent[512])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[256], own[256] = "";
    bool v1 = false;
    while (file && !v1 && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *memory = strstr(line, ":memory:");
        if (memory || strncmp(line, "0::", 3) == 0)
            (void)snprintf(own, sizeof own, "%s", memory ? memory + 8 : line + 3);
        v1 = memory != NULL;
    }
    if (file)
        (void)fclose(file);
    unified = !v1;
    const char *base = v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    (void)snprintf(parent, 512, "%s%s", base, own);
    if (access(parent, W_OK) != 0)
        (void)snprintf(parent, 512, "%s", base);
    return access(parent, W_OK) == 0;
}

static bool make_group(void)
{
    char parent[512];
    uint64_t ignored;
    if (!find_parent(parent))
        return false;
    (void)snprintf(group, sizeof group, "%s/sluice-test.%d", parent, (int)getpid());
    if (mkdir(group, 0755) != 0) {
        group[0] = '\0';
        return false;
    }
    if (read_number(unified ? "memory.peak" : "memory.max_usage_in_bytes", NULL, &ignored))
        return true;
    (void)rmdir(group);
    group[0] = '\0';
    return false;
}

/* ---- the child ---- */

/* Open, fill the context, answer: every page that the plan counts is touched. Runs in a fresh process image,
 * so that nothing of the test's own memory is in the group. */
static int child(const char *install, const char *memory, const char *verification)
{
    sluice_error err = {0};
    sluice_engine *engine;
    sluice_session *session;
    sluice_generated generated;
    static int32_t ids[CONTEXT - ANSWER];
    sluice_engine_options options = {
        .memory_bytes = strtoull(memory, NULL, 10),
        .context_tokens = CONTEXT,
        .verification = strcmp(verification, "full") == 0 ? SLUICE_VERIFY_FULL : SLUICE_VERIFY_RECEIPT,
    };
    const sluice_generate_options answer = {.max_tokens = ANSWER, .ignore_stop_ids = true};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = (int32_t)(200 + i * 37 % 7000);
    if (sluice_engine_open(install, &options, &engine, &err) != SLUICE_OK ||
        sluice_session_open(engine, &session, &err) != SLUICE_OK ||
        sluice_session_prefill(session, ids, sizeof ids / sizeof *ids, &err) != SLUICE_OK ||
        sluice_generate(session, &answer, NULL, NULL, &generated, &err) != SLUICE_OK) {
        (void)fprintf(stderr, "child: %s\n", err.detail);
        return 1;
    }
    sluice_session_close(session);
    sluice_engine_close(engine);
    return 0;
}

struct charged {
    int status; /* of wait(2) */
    uint64_t peak, kills;
};

static struct charged run_child(uint64_t memory, const char *verification, uint64_t limit)
{
    struct charged c = {0};
    char memory_text[24], limit_text[24];
    (void)snprintf(memory_text, sizeof memory_text, "%llu", (unsigned long long)memory);
    (void)snprintf(limit_text, sizeof limit_text, "%llu", (unsigned long long)limit);
    assert_true(make_group());
    if (limit)
        assert_true(write_text(unified ? "memory.max" : "memory.limit_in_bytes", limit_text));
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char self[24];
        (void)snprintf(self, sizeof self, "%d", (int)getpid());
        if (write_text("cgroup.procs", self))
            (void)execl("/proc/self/exe", "test_charged", "child", demo.install, memory_text, verification,
                        (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &c.status, 0), pid);
    assert_true(read_number(unified ? "memory.peak" : "memory.max_usage_in_bytes", NULL, &c.peak));
    (void)read_number(unified ? "memory.events" : "memory.oom_control", "oom_kill", &c.kills);
    assert_int_equal(rmdir(group), 0);
    return c;
}

/* ---- tests ---- */

/* A sanitizer's shadow is charged to the process as well, twice the program's own memory and more. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SHADOWED = true };
#else
enum { SHADOWED = false };
#endif

static void skip_without_group(void)
{
    if (SHADOWED)
        skip();
    if (make_group()) {
        (void)rmdir(group);
        return;
    }
    print_message(
        "SKIPPED: no memory cgroup can be made here (root, or a delegated group, is needed): whether the "
        "plan is true was NOT tested\n");
    skip();
}

static uint64_t least_budget(void)
{
    sluice_error err = {0};
    sluice_plan plan;
    const sluice_engine_options options = {.memory_bytes = 1, .context_tokens = CONTEXT};
    assert_int_equal(sluice_plan_install(demo.install, &options, &plan, &err), SLUICE_E_BUDGET);
    return plan.minimum_bytes;
}

static const char *const VERIFICATIONS[] = {"full", "receipt"};

static void test_peak_within_budget(void **state)
{
    (void)state;
    skip_without_group();
    const uint64_t budgets[] = {least_budget(), least_budget() + (6u << 20), 96u << 20};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        for (size_t v = 0; v < 2; v++) {
            struct charged c = run_child(budgets[i], VERIFICATIONS[v], 0);
            print_message("budget %.1f MiB, verify %s: charged %.1f MiB\n", (double)budgets[i] / 1048576,
                          VERIFICATIONS[v], (double)c.peak / 1048576);
            assert_int_equal(c.status, 0);
            assert_true(c.peak > 1u << 20); /* it ran in the group */
            assert_true(c.peak <= budgets[i]);
        }
}

static void test_limit_is_enough(void **state)
{
    (void)state;
    skip_without_group();
    for (size_t v = 0; v < 2; v++) {
        uint64_t budget = least_budget();
        struct charged c = run_child(budget, VERIFICATIONS[v], budget / 4096 * 4096);
        assert_int_equal(c.status, 0);
        assert_int_equal(c.kills, 0);
        assert_true(c.peak <= budget);
    }
}

static int teardown(void **state)
{
    if (group[0])
        (void)rmdir(group);
    return demo_teardown(state);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "child") == 0)
        return child(argv[2], argv[3], argv[4]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak_within_budget),
        cmocka_unit_test(test_limit_is_enough),
    };
    return cmocka_run_group_tests(tests, demo_setup, teardown);
}
