/* A chat template, then behind a NUL its variables as JSON. */
#include "base/json.h"
#include "require.h"
#include "text/template.h"

#include <stdlib.h>
#include <string.h>

static json_t *read_variables(const char *text, size_t n)
{
    static const char DEFAULT[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\" Hi \\u00e9 "
        "\"},{\"role\":\"assistant\",\"content\":\"a<b>\"}],"
        "\"bos_token\":\"<bos>\",\"add_generation_prompt\":true,\"n\":3,\"x\":1.5,\"list\":[1,2,\"a\",null],"
        "\"d\":{\"a\":{\"b\":[]},\"k\":\"v\"}}";
    json_t *root = NULL;
    if (n == 0)
        (void)json_parse(DEFAULT, sizeof DEFAULT - 1, "variables", &root, NULL);
    else
        (void)json_parse(text, n, "variables", &root, NULL);
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const TRUSTED[] = {"bos_token", NULL};
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    struct template *t = NULL;
    sluice_error err;
    if (template_open((const char *)data, n, &t, &err) != SLUICE_OK) {
        require(t == NULL && err.detail[0] != '\0');
        return 0;
    }
    json_t *variables = read_variables(cut ? (const char *)cut + 1 : NULL, cut ? size - n - 1 : 0);
    struct str text = {0}, marks = {0};
    if (variables) {
        struct template_input input = {variables, TRUSTED, 1764421200};
        sluice_status status = template_render(t, &input, &text, &marks, &err);
        require(text.len == marks.len && (status == SLUICE_OK || (text.len == 0 && err.detail[0] != '\0')));
        for (size_t i = 0; i < marks.len; i++)
            require(marks.p[i] == 0 || marks.p[i] == 1);
    }
    str_free(&text);
    str_free(&marks);
    json_decref(variables);
    template_close(t);
    return 0;
}
