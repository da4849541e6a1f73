#include "model/family.h"

#include "base/str.h"
#include "model/gemma4.h"
#include "model/qwen.h"

#include <string.h>

const struct family *const FAMILIES[] = {
    &GEMMA4,
    &QWEN36,
    &QWEN38,
    NULL,
};

static sluice_status unsupported(const char *type, sluice_error *err)
{
    struct str list = {0};
    for (size_t i = 0; FAMILIES[i]; i++)
        for (size_t j = 0; FAMILIES[i]->model_types[j]; j++)
            (void)str_printf(&list, "%s%s", list.len ? ", " : "", FAMILIES[i]->model_types[j]);
    sluice_status status = err_set(err, SLUICE_E_UNSUPPORTED,
                                   "config.json: model_type \"%s\" is not supported; supported are: %s", type,
                                   list.p ? list.p : "(out of memory)");
    str_free(&list);
    return status;
}

sluice_status model_open(const json_t *config, struct model **model, sluice_error *err)
{
    const char *type;
    *model = NULL;
    TRY(json_need_string(config, "model_type", &type, "config.json", err));
    for (size_t i = 0; FAMILIES[i]; i++)
        for (size_t j = 0; FAMILIES[i]->model_types[j]; j++)
            if (strcmp(type, FAMILIES[i]->model_types[j]) == 0)
                return FAMILIES[i]->open(config, model, err);
    return unsupported(type, err);
}

void model_close(struct model *model)
{
    if (model)
        model->family->close(model);
}

static sluice_status not_finite(uint32_t position, sluice_error *err)
{
    return err_set(err, SLUICE_E_NUMERIC,
                   "the logits at position %u are not finite; the weights or the arithmetic are broken",
                   position);
}

/* All rows through one product, which reads the head once. Rows that may not count need not be finite: the
 * session looks at those that do. */
static sluice_status logits_rows(const struct model *model, struct forward *f, const struct mat *head,
                                 float cap, const float *x, sluice_error *err)
{
    const struct backend_ops *ops = f->backend->ops;
    ops->linear(f->backend, &head, 1, x, f->n_rows, &f->logits);
    if (cap > 0)
        ops->softcap(f->backend, f->logits, cap, (size_t)f->n_rows * model->vocab);
    if (!ops->finite(f->backend, f->logits, model->vocab))
        return not_finite(f->position0, err);
    return SLUICE_OK;
}

sluice_status forward_logits(const struct model *model, struct forward *f, const struct mat *head, float cap,
                             const float *x, sluice_error *err)
{
    if (f->mode == LOGITS_NONE)
        return SLUICE_OK;
    const struct backend_ops *ops = f->backend->ops;
    if (f->mode == LOGITS_ROWS)
        return logits_rows(model, f, head, cap, x, err);
    for (uint32_t r = f->mode == LOGITS_ALL ? 0 : f->n_rows - 1; r < f->n_rows; r++) {
        ops->linear(f->backend, &head, 1, x + (size_t)r * model->hidden, 1, &f->logits);
        if (cap > 0)
            ops->softcap(f->backend, f->logits, cap, model->vocab);
        if (!ops->finite(f->backend, f->logits, model->vocab))
            return not_finite(f->position0 + r, err);
        if (f->mode == LOGITS_ALL && f->sink)
            f->sink(f->sink_user, f->position0 + r, f->logits);
    }
    trace_f32(f, -1, "logits", f->logits, 1, model->vocab);
    return SLUICE_OK;
}
