/* Routing traces: which experts every layer of every token used. Recorded from a session, made up with a
 * stated reuse, read back; replayed by the benchmark and by the cache simulator.
 *
 * A file is a header of 256 bytes, one JSON object padded with spaces and ended by a newline,
 *     {"format": "sluice-routes", "version": 1, "family": …, "layers": L, "experts": E, "top_k": K, "tokens":
 * N} then N records of 8 + 2·L·K bytes, little-endian: u32 position; u16 rows of the same chunk that follow
 * (0 in a decode step); u16 flags, bit 0 a decode step; u16 expert ids [L][K] in router order, 0xFFFF for a
 * layer without routed experts. "tokens" is null until the recording ended. */
#ifndef RUN_ROUTES_H
#define RUN_ROUTES_H

#include "model/family.h"

#define ROUTES_HEADER_BYTES 256
#define ROUTES_NONE         0xFFFFu
#define ROUTES_TOKENS_MAX   (1u << 22)

struct route_token {
    uint32_t position;
    uint16_t rows_left;
    bool decode;
};

struct routes {
    char family[32];
    uint32_t layers, experts, top_k;
    size_t tokens;
    struct route_token *token; /* [tokens] */
    uint16_t *ids;             /* [tokens][layers][top_k] */
};

/* *routes needs routes_free() whatever is returned. */
sluice_status routes_parse(const unsigned char *bytes, size_t n, struct routes *routes, const char *name,
                           sluice_error *err);
sluice_status routes_load(const char *path, struct routes *routes, sluice_error *err);
void routes_free(struct routes *routes);

/* `spec` is "zipf:S" (each layer has its own popular experts: the k-th is drawn in proportion to 1/k^S) or
 * "reuse:P" (each expert of the token before is kept with probability P, the rest are drawn evenly).
 * Decode steps; the same seed gives the same ids. */
bool routes_is_spec(const char *spec);
sluice_status routes_generate(const char *spec, uint32_t layers, uint32_t experts, uint32_t top_k,
                              size_t tokens, uint64_t seed, struct routes *routes, sluice_error *err);

/* ---- recording ---- */

struct route_recorder;

/* A new file, or more of one that holds a finished trace of the same model. SLUICE_E_EXISTS: something else
 * is there. `rows`: most in a chunk. Nothing allocates between open and close. */
sluice_status recorder_open(struct route_recorder **recorder, const char *path, const struct model *model,
                            uint32_t rows, sluice_error *err);
const struct route_watch *recorder_watch(const struct route_recorder *recorder);
/* The rows that the watch saw are part of the timeline. A failed write is kept until recorder_close(). */
void recorder_commit(struct route_recorder *recorder, uint32_t position0, uint32_t rows, bool decode);
/* Ends the file; says whether all of it was written. NULL is fine. */
sluice_status recorder_close(struct route_recorder *recorder, sluice_error *err);

/* ---- replaying ---- */

/* Token t of the timeline gets the ids of token (first + t) mod routes->tokens. A guess is one of them with
 * probability guess_accuracy, otherwise another of the trace's for that layer, so as popular as they are. */
struct route_replay {
    const struct routes *routes;
    size_t first;
    double guess_accuracy;
    struct route_override override;
};

/* SLUICE_E_ARGUMENT when the trace is of another shape than the model. */
sluice_status replay_open(struct route_replay *replay, const struct routes *routes, const struct model *model,
                          sluice_error *err);

#endif
