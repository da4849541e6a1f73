/* What quantizing at install changes before a byte is copied: the install's config.json says how its matrices
 * are stored, and the family's recipe is made from that one. */
#include "base/mem.h"
#include "store/install_work.h"

#include <stdio.h>
#include <string.h>

enum { GROUP = 64 };

static json_t *storage(unsigned bits)
{
    return json_pack("{s:i, s:i}", "group_size", GROUP, "bits", (int)bits);
}

static bool keeps_8_bits(const struct recipe *recipe, const char *name)
{
    for (const char *const *k = recipe->keep_8_bits; k && *k; k++)
        if (strstr(name, *k))
            return true;
    return false;
}

/* Set config's "quantization", with an override for each module that keeps 8 bits. */
static sluice_status describe(json_t *config, const struct recipe *recipe, unsigned bits, sluice_error *err)
{
    static const char WEIGHT[] = ".weight";
    json_t *q = storage(bits);
    int failed = json_object_set_new(q, "mode", json_string("affine"));
    for (size_t i = 0; recipe && bits != 8 && i < recipe->n_specs && !failed; i++) {
        const struct tensor_spec *spec = &recipe->specs[i];
        size_t length = strlen(spec->name);
        if (spec->dtype != DTYPE_AFFINE || length < sizeof WEIGHT || !keeps_8_bits(recipe, spec->name))
            continue;
        char path[TENSOR_NAME_BYTES_MAX];
        (void)snprintf(path, sizeof path, "%.*s", (int)(length - (sizeof WEIGHT - 1)), spec->name);
        failed = json_object_set_new(q, path, storage(8));
    }
    if (json_object_set_new(config, "quantization", q) != 0 || failed)
        return err_memory(err, 0, "config.json");
    return SLUICE_OK;
}

sluice_status install_quantized_recipe(struct install *w, unsigned bits, recipe_fn fn, sluice_error *err)
{
    if (bits != 4 && bits != 8)
        return err_set(err, SLUICE_E_ARGUMENT, "%u bits cannot be quantized to at install; 4 and 8 can",
                       bits);
    if (json_has(w->config, "quantization") || json_has(w->config, "quantization_config"))
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%s is quantized already, and is never quantized again; install it without --quantize",
                       w->source->name);
    /* Once to learn which modules there are, once with their storage. */
    TRY(describe(w->config, NULL, bits, err));
    TRY(install_recipe(w, fn, err));
    if (!w->recipe.aliases)
        return err_set(
            err, SLUICE_E_UNSUPPORTED,
            "models of the family %s cannot be quantized at install; install a quantized checkpoint",
            w->recipe.family);
    TRY(describe(w->config, &w->recipe, bits, err));
    recipe_free(&w->recipe);
    TRY(install_recipe(w, fn, err));
    w->recipe.quantize = true;
    return json_print(w->config, JSON_INDENT(2), "config.json", &w->config_text, err);
}
