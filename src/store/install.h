/* Lay a checkpoint out as a .gturbo directory. The family's knowledge comes in through a recipe, so that the
 * store knows formats and no model. */
#ifndef STORE_INSTALL_H
#define STORE_INSTALL_H

#include "base/json.h"
#include "base/tensor.h"
#include "store/source.h"

/* What a family says about one checkpoint. Filled by a recipe_fn; released by recipe_free. */
struct recipe {
    const char *family;        /* static */
    struct tensor_spec *specs; /* resident ones in index order (b1), then expert stacks by layer; mem_alloc */
    size_t n_specs;
    uint32_t n_layers, n_experts; /* n_experts 0: no routed experts */
    json_t *arch, *quant;         /* manifest objects (b3), new references */
    /* NULL: none. A further file that the source may have, whose tensors with this prefix join the others;
     * what else it holds is not looked at. */
    const char *extra_file, *extra_prefix;
    const char *const *skip; /* NULL-ended list of substrings; tensors whose names contain one are left out */
    /* For quantizing at install; NULL where the family has none of it. Both end with a NULL. */
    bool quantize;                      /* specs of type affine are made of float tensors */
    const struct tensor_alias *aliases; /* names in an unquantized checkpoint */
    const char *const *keep_8_bits;     /* substrings of the modules that get 8 bits whatever was asked for */
};

void recipe_free(struct recipe *recipe);

/* config is the parsed config.json; has(names, NAME) tells whether the source has a tensor. */
typedef sluice_status (*recipe_fn)(const json_t *config, bool (*has)(void *names, const char *name),
                                   void *names, struct recipe *recipe, sluice_error *err);

/* Install from options->source_dir. `report` may be NULL. */
sluice_status store_install(const sluice_install_options *options, recipe_fn fn,
                            sluice_install_report *report, sluice_error *err);

struct install_limits {
    uint64_t
        range_bytes; /* the most that one range spans, the unit of what an interruption can lose; 0: 64 MiB */
    const char *index_sha256; /* the source's index must have this digest; NULL: any */
};

/* The same from any source, which stays the caller's; options->source_dir is not looked at. `limits` may be
 * NULL. */
sluice_status store_install_from(struct source *source, const sluice_install_options *options,
                                 const struct install_limits *limits, recipe_fn fn,
                                 sluice_install_report *report, sluice_error *err);

#endif
