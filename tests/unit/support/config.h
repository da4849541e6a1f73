/* Changing a config.json, and what the families say about it. */
#ifndef SUPPORT_CONFIG_H
#define SUPPORT_CONFIG_H

#include "base/mem.h"
#include "io/file.h"
#include "model/family.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static inline json_t *load_config(const char *path)
{
    char *text;
    size_t bytes;
    json_t *root;
    assert_int_equal(file_load(path, 1 << 20, &text, &bytes, NULL), SLUICE_OK);
    assert_int_equal(json_parse(text, bytes, "config.json", &root, NULL), SLUICE_OK);
    mem_free(text);
    return root;
}

static inline const struct tensor_spec *find_spec(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->n_specs; i++)
        if (strcmp(m->specs[i].name, name) == 0)
            return &m->specs[i];
    return NULL;
}

/* Replace the member at `path` ("text_config.head_dim") by a JSON value; "" deletes it. */
static inline void change(json_t *root, const char *path, const char *value)
{
    char copy[128];
    (void)snprintf(copy, sizeof copy, "%s", path);
    json_t *at = root;
    char *key = copy, *dot;
    while ((dot = strchr(key, '/'))) {
        *dot = '\0';
        at = json_object_get(at, key);
        assert_non_null(at);
        key = dot + 1;
    }
    if (!*value) {
        assert_int_equal(json_object_del(at, key), 0);
        return;
    }
    json_t *json = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    assert_int_equal(json_object_set_new(at, key, json), 0);
}

/* A changed member, and the refusal that must follow. */
struct refused {
    const char *path, *value, *says;
    sluice_status status;
};

static inline void expect_refused(const char *file, const struct refused *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *config = load_config(file);
        change(config, rows[i].path, rows[i].value);
        struct model *m;
        sluice_error err = {0};
        sluice_status status = model_open(config, &m, &err);
        if (status != rows[i].status || !strstr(err.detail, rows[i].says))
            fail_msg("%s = %s: status %d, \"%s\"", rows[i].path, rows[i].value, (int)status, err.detail);
        json_decref(config);
    }
}

#endif
