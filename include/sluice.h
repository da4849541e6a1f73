/* sluice.h: run Mixture-of-Experts language models larger than memory.
 *
 * This is the one public header. The command-line program and the server use nothing else.
 *
 * Contract
 *   - No globals hold state: everything hangs off an engine or a session.
 *   - Errors are returned, never printed; nothing here calls exit(). What an engine logs goes where its
 *     options say, and nowhere unless they do. A function that can fail returns a
 *     sluice_status and, when `err` is not NULL, fills it with a sentence that names the thing, the limit
 *     and the next step.
 *   - An engine may be shared by threads. A session belongs to one thread at a time; only
 *     sluice_session_cancel() may be called from elsewhere.
 *   - Text is UTF-8. Sizes in `_bytes` are bytes, `_tokens` tokens, `_ns` nanoseconds.
 *   - Memory handed out through a pointer-to-pointer is released with sluice_free().
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_VERSION "0.1.0"

/* ---- errors ---- */

typedef enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_E_ARGUMENT,    /* the caller asked for something that makes no sense */
    SLUICE_E_IO,          /* the operating system refused an operation */
    SLUICE_E_FORMAT,      /* a file is not what it claims to be */
    SLUICE_E_CORRUPT,     /* bytes do not match their recorded digest */
    SLUICE_E_UNSUPPORTED, /* valid, but not something this build can do */
    SLUICE_E_MEMORY,      /* an allocation failed */
    SLUICE_E_BUDGET,      /* the memory budget is too small */
    SLUICE_E_CONTEXT,     /* the context is full */
    SLUICE_E_BUSY,        /* somebody else holds the lock */
    SLUICE_E_EXISTS,      /* the output is already there */
    SLUICE_E_CANCELLED,   /* the caller cancelled */
    SLUICE_E_NUMERIC,     /* a value that must be finite is not */
} sluice_status;

#define SLUICE_DETAIL_BYTES 512

typedef struct sluice_error {
    sluice_status status;
    char detail[SLUICE_DETAIL_BYTES]; /* one sentence, no newline at its end */
} sluice_error;

/* A few words for a status ("corrupt data"); never NULL, static storage. */
const char *sluice_status_text(sluice_status status);

/* Release memory that a function of this header handed out. NULL is fine. */
void sluice_free(void *memory);

/* ---- progress of long operations ---- */

typedef struct sluice_progress {
    const char *phase; /* "copy", "verify", "load" */
    uint64_t done_bytes, total_bytes;
    /* Of an install: synced to disk, with a tag in the journal that a resume compares. Of a verification: of
     * files whose digest was right. 0 in phases that prove nothing. */
    uint64_t verified_bytes;
} sluice_progress;

/* Called from the thread that runs the operation, a few times a second at most. */
typedef void (*sluice_progress_fn)(void *user, const sluice_progress *progress);

typedef struct sluice_watch {
    sluice_progress_fn progress; /* may be NULL */
    void *user;
    const volatile int *cancel; /* may be NULL; non-zero ends the operation with SLUICE_E_CANCELLED. A signal
                                   handler may set it. */
} sluice_watch;

/* ---- the log ---- */

/* A level holds those before it. */
typedef enum sluice_log_level {
    SLUICE_LOG_OFF = 0,
    SLUICE_LOG_ERROR,   /* a failure that no call returns */
    SLUICE_LOG_WARNING, /* "a mirror failed and is no longer used" */
    SLUICE_LOG_INFO,    /* what was decided, and why: kernels, threads, memory, how experts are read */
    SLUICE_LOG_DEBUG,   /* each file that is hashed, each prompt */
} sluice_log_level;

/* One line of text without its end. From any thread, during any call, one at a time; must not call the
 * library. */
typedef void (*sluice_log_fn)(void *user, sluice_log_level level, const char *record);

/* A zeroed structure: nothing is logged. */
typedef struct sluice_log {
    sluice_log_level level;
    sluice_log_fn write; /* NULL: lines "level: record" on standard error */
    void *user;
} sluice_log;

/* ---- install and verify ---- */

struct sluice_install_report;

typedef struct sluice_install_options {
    /* One of the two: a snapshot directory (config.json, tokenizer.json, *.safetensors), or a model hub's
     * repository: a name of the registry (sluice_models) or OWNER/NAME. */
    const char *source_dir, *repo;
    const char *revision; /* of a repository: commit, tag or branch; NULL: the registry's, or "main" */
    const char *base_url; /* of the hub or a mirror; NULL: the hub's own */
    const char
        *token; /* for private and gated repositories; NULL: none. Sent over https, or to this machine */
    const char *ca_file;  /* certificates to trust instead of the system's, a file or a directory as OpenSSL
 reads it;  NULL: the system's */
    uint32_t connections; /* requests in flight; 0: 4 */
    uint32_t
        quantize_bits; /* 4 or 8: quantize an unquantized checkpoint (lossy); 0: copy values as they are */
    const char *output_dir; /* conventionally NAME.gturbo; its parent must exist */
    bool dry_run;           /* plan and check everything, write nothing */
    bool overwrite;         /* replace a finished install atomically */
    bool resume;            /* go on with an interrupted install */
    bool discard;           /* delete an interrupted install's partial data first */
    /* Called once when everything is checked and before the first byte is written, a dry run included; may be
     * NULL. `user` is watch.user. */
    void (*planned)(void *user, const struct sluice_install_report *report);
    sluice_watch watch;
} sluice_install_options;

typedef struct sluice_install_report {
    char family[32];
    uint64_t source_bytes; /* payload bytes that the plan reads */
    uint64_t output_bytes; /* size of the finished directory's data files */
    uint64_t reused_bytes; /* destination bytes that a resume verified and kept */
    uint64_t stride_bytes; /* of one expert record */
    uint32_t ranges;       /* source ranges in the plan */
    uint32_t resident_tensors, skipped_tensors;
    uint32_t expert_layers, experts_per_layer;
    char revision[64]; /* of a repository: the commit, or what was asked for where the server names none */
    bool pinned;       /* of a repository: its index has the registry's digest; false: trusted on first use */
} sluice_install_report;

/* Lay a checkpoint out as a .gturbo directory. Values are copied, never re-quantized, unless quantize_bits
 * says otherwise; payload passes through at most 1 MiB of scratch, and from a hub through 24 MiB of buffers.
 * Interrupted at any moment, it can be resumed and ends in the same bytes. SLUICE_E_EXISTS: the output
 * exists, or a partial one does and neither resume nor discard was asked. SLUICE_E_BUSY: another process
 * installs to the same output. `report` may be NULL. */
sluice_status sluice_install(const sluice_install_options *options, sluice_install_report *report,
                             sluice_error *err);

/* An install of a family's published size with random weights: to measure, not to talk to. */
typedef struct sluice_synth_options {
    const char *family;                       /* SLUICE_E_ARGUMENT lists those that there are */
    const char *output_dir;                   /* conventionally NAME.gturbo; its parent must exist */
    uint32_t layers;                          /* 0: as many as published */
    uint64_t seed;                            /* the same family, layers and seed give the same bytes */
    bool dry_run, overwrite, resume, discard; /* as for sluice_install */
    sluice_watch watch;
} sluice_synth_options;

/* Errors as sluice_install. `report` may be NULL. */
sluice_status sluice_synth(const sluice_synth_options *options, sluice_install_report *report,
                           sluice_error *err);

/* A checkpoint of the registry. Everything has static storage. */
typedef struct sluice_model {
    const char *name, *title; /* "qwen36"; what it is */
    const char *repo, *revision;
    const char *index_sha256; /* of the shard index; NULL: not pinned, trusted on first use */
    const char *model_type, *quantization, *licence;
    uint64_t download_bytes, install_bytes;
    uint64_t memory_bytes; /* least that runs it, with a context of 4096 tokens; an estimate */
    uint64_t token_bytes;  /* read from the drive per token when no expert is in memory */
    bool runnable;         /* by this build */
} sluice_model;

/* Fill up to n rows; returns how many there are. */
size_t sluice_models(sluice_model *models, size_t n);
/* The row of that name or repository. False when there is none. */
bool sluice_model_find(const char *name_or_repo, sluice_model *model);

/* Memory that a new process may take now: the cgroup's limit, or what the machine has available. */
uint64_t sluice_available_memory_bytes(void);

typedef enum sluice_install_condition {
    SLUICE_INSTALL_ABSENT = 0,
    SLUICE_INSTALL_PARTIAL, /* interrupted, or still running */
    SLUICE_INSTALL_COMPLETE,
} sluice_install_condition;

typedef struct sluice_install_state {
    sluice_install_condition condition;
    bool busy;     /* another process holds the install's lock */
    bool verified; /* complete: a receipt fits the files */
    char model_id[160], revision[64];
    uint64_t bytes;      /* complete: of all files. Partial: of the source */
    uint64_t done_bytes; /* partial: of the source, recorded as on disk */
} sluice_install_state;

/* What there is at an output path, finished or not; reads small files only. */
sluice_status sluice_install_examine(const char *output_dir, sluice_install_state *state, sluice_error *err);
/* Delete an install, or what an interrupted one left; of a link, the link alone. SLUICE_E_FORMAT: the
 * directory is no install. SLUICE_E_BUSY: an install to it is running. */
sluice_status sluice_install_remove(const char *output_dir, sluice_error *err);

typedef struct sluice_verify_report {
    uint32_t files;
    uint64_t bytes;
    bool receipt_renewed; /* the receipt was missing or outdated and has been written again */
} sluice_verify_report;

/* Hash every file of an install and compare with its manifest. Everything equal: (re)writes the receipt.
 * SLUICE_E_CORRUPT names the first file that differs. `watch` and `report` may be NULL. */
sluice_status sluice_verify(const char *install_dir, const sluice_watch *watch, sluice_verify_report *report,
                            sluice_error *err);

/* ---- engine ---- */

typedef struct sluice_engine sluice_engine;
typedef struct sluice_session sluice_session;
typedef struct sluice_tokenizer sluice_tokenizer;

typedef enum sluice_kv_type { SLUICE_KV_F16 = 0, SLUICE_KV_BF16, SLUICE_KV_F32 } sluice_kv_type;

typedef enum sluice_activations {
    SLUICE_ACTIVATIONS_INT8 = 0, /* rows quantized to 8 bits per weight group: the default */
    SLUICE_ACTIVATIONS_F32,      /* the mode that is compared with outside references */
} sluice_activations;

typedef enum sluice_eviction { SLUICE_EVICT_LFU = 0, SLUICE_EVICT_LRU } sluice_eviction;

typedef enum sluice_verification {
    SLUICE_VERIFY_FULL = 0, /* hash common files at open and every expert file on its first use */
    SLUICE_VERIFY_RECEIPT,  /* trust the receipt of an earlier full verification */
} sluice_verification;

typedef enum sluice_io {
    SLUICE_IO_AUTO =
        0, /* what a probe found best (sluice_probe), else the ring, or threads where it is refused */
    SLUICE_IO_URING,
    SLUICE_IO_THREADS,
} sluice_io;

/* Who guesses tokens ahead, for the model to check several in one pass (speculative decoding). It decides
 * speed, never output. */
typedef enum sluice_draft {
    SLUICE_DRAFT_OFF = 0,
    SLUICE_DRAFT_LOOKUP, /* the text itself: what followed where its end occurred before */
    SLUICE_DRAFT_MTP,    /* the model's own layer for it, where the install has one */
} sluice_draft;

#define SLUICE_SLOTS_ALL     UINT32_MAX
#define SLUICE_LOOKAHEAD_OFF UINT32_MAX

typedef struct sluice_paths {
    const char **items;
    size_t n;
} sluice_paths;

/* A zeroed structure asks for the defaults. */
typedef struct sluice_engine_options {
    uint64_t memory_bytes;   /* budget for everything; 0: what is available now, less a reserve */
    uint32_t context_tokens; /* 0: 4096, or the model's maximum when that is smaller */
    uint32_t
        prefill_chunk_tokens; /* 0: chosen from the budget (128 at least), and split evenly over a prompt */
    uint32_t expert_slots;    /* per layer; 0: from the budget; SLUICE_SLOTS_ALL: every expert */
    uint64_t expert_cache_bytes; /* another way to ask for slots; not together with expert_slots */
    uint32_t threads;            /* 0: one per available core */
    uint32_t read_threads;       /* expert reads in flight at once; 0: 64 in a ring, 8 with threads */
    uint64_t grammar_bytes; /* for schemas and grammars of all sessions; 0: 4 to 16 MiB each, by the budget.
                               One that needs more is refused */
    uint32_t max_sessions;  /* sessions that the budget must hold at once; 0: 1 */
    sluice_kv_type kv;
    sluice_activations activations;
    sluice_eviction eviction;
    sluice_verification verification;
    const char *isa; /* instruction set of the CPU kernels (sluice_cpu_isas); NULL or "auto": the best */
    sluice_io io;
    sluice_paths mirrors; /* directories with further copies of packed_experts/layer_NN.bin; at most 7 */
    uint32_t lookahead_experts; /* of the next layer, guessed and read while the drive is idle; at most 32;
                                   0: what pays for the family where experts are streamed;
                                   SLUICE_LOOKAHEAD_OFF */
    sluice_draft draft;
    uint32_t draft_max; /* most tokens to guess at once, at most 16; 0: 15 by lookup, 4 by mtp. How many is
                           chosen by what pays, down to none */
    sluice_watch watch; /* of the open itself */
    sluice_log log;     /* of the engine and its sessions */
} sluice_engine_options;

/* An instruction set that this build has kernels for. It decides speed, never output. */
typedef struct sluice_cpu_isa {
    const char *name, *about; /* static storage */
    bool usable;              /* by this processor and system */
    bool best;                /* what "auto" takes */
} sluice_cpu_isa;

/* Fill up to n rows, in rising preference; returns how many there are. */
size_t sluice_cpu_isas(sluice_cpu_isa *isas, size_t n);

#define SLUICE_PLAN_ITEMS 12

/* The memory plan: what each part takes, and the smallest budget that would work. */
typedef struct sluice_plan {
    struct {
        const char *name; /* static storage */
        uint64_t bytes;
    } items[SLUICE_PLAN_ITEMS];
    uint32_t n_items;
    uint64_t total_bytes, limit_bytes, minimum_bytes;
    uint64_t unmetered_bytes; /* of total_bytes: what is estimated, not allocated from the budget */
    uint64_t grammar_bytes;   /* of total_bytes: set aside for schemas and grammars at work */
    const char *limit_source; /* "--memory", "cgroup limit" or "available memory"; static storage */
    uint32_t context_tokens, prefill_chunk_tokens, expert_slots, experts_per_layer;
    uint32_t lookahead_experts;                /* 0: off */
    uint32_t expert_layers, experts_per_token; /* a token asks every layer for so many */
    uint64_t expert_bytes;                     /* that one of them reads from the drive */
} sluice_plan;

/* Compute the plan of an install without reading a weight. SLUICE_E_BUDGET still fills `plan`. */
sluice_status sluice_plan_install(const char *install_dir, const sluice_engine_options *options,
                                  sluice_plan *plan, sluice_error *err);

/* Open an install: check it, load what every token needs, reserve the expert cache. `options` may be NULL. */
sluice_status sluice_engine_open(const char *install_dir, const sluice_engine_options *options,
                                 sluice_engine **engine, sluice_error *err);
/* Every session must be closed first. NULL is fine. */
void sluice_engine_close(sluice_engine *engine);

const sluice_plan *sluice_engine_plan(const sluice_engine *engine);
const sluice_tokenizer *sluice_engine_tokenizer(const sluice_engine *engine);

typedef struct sluice_model_info {
    const char *family, *model_id; /* owned by the engine */
    uint32_t layers, vocab_tokens, hidden, max_context_tokens;
    uint32_t experts_per_layer, experts_per_token;
} sluice_model_info;

void sluice_engine_info(const sluice_engine *engine, sluice_model_info *info);

/* What an install holds, as a JSON text: architecture, quantization, files, every resident tensor, expert
 * layout, receipt. Reads headers only. Free *json with sluice_free(). */
sluice_status sluice_inspect(const char *install_dir, char **json, sluice_error *err);

/* ---- the drive ---- */

typedef struct sluice_probe_row {
    sluice_io engine; /* never SLUICE_IO_AUTO */
    bool direct;      /* O_DIRECT, or through the page cache */
    uint32_t depth;   /* reads in flight */
    uint64_t block_bytes;
    double bytes_per_s, cpu_s_per_gb;
} sluice_probe_row;

#define SLUICE_PROBE_ROWS 32

typedef struct sluice_probe_report {
    sluice_probe_row rows[SLUICE_PROBE_ROWS];
    uint32_t n_rows, best; /* best: a row whose block is an expert record's size */
    char file[512];        /* what was read */
    uint64_t file_bytes;
    bool temporary;  /* the file was written for it and has been deleted */
    bool remembered; /* in INSTALL.probe.json, which SLUICE_IO_AUTO follows */
    char why_not[SLUICE_DETAIL_BYTES];
} sluice_probe_report;

/* Measure, in a few seconds, how fast the drive under an install (or any directory) delivers blocks at random
 * offsets: engine, mode, depth, block size. Where no file is large enough, one of 256 MiB is written and
 * deleted. The result for an install is remembered beside it. `watch` may be NULL. */
sluice_status sluice_probe(const char *dir, const sluice_watch *watch, sluice_probe_report *report,
                           sluice_error *err);

/* ---- text ---- */

enum sluice_tokenize_flags {
    SLUICE_TOKENIZE_SPECIAL = 1, /* the text may contain control tokens: only for text that you wrote */
    SLUICE_TOKENIZE_BOS = 2,     /* put the beginning-of-sequence token first when the model has one */
};

/* Open just the tokenizer and chat template of an install (or of a snapshot directory). */
sluice_status sluice_tokenizer_open(const char *dir, sluice_tokenizer **tokenizer, sluice_error *err);
void sluice_tokenizer_close(sluice_tokenizer *tokenizer);

/* Text to token ids. Free *ids with sluice_free(). Invalid UTF-8 is read as U+FFFD. */
sluice_status sluice_tokenize(const sluice_tokenizer *tokenizer, const char *text, size_t text_bytes,
                              unsigned flags, int32_t **ids, size_t *n_ids, sluice_error *err);

/* The vocabulary's own spelling of a token ("▁the", "<0x0A>"), or NULL for an id that it does not have.
 * Owned by the tokenizer. `is_control` may be NULL. */
const char *sluice_token_text(const sluice_tokenizer *tokenizer, int32_t id, bool *is_control);

typedef struct sluice_detokenizer sluice_detokenizer;

/* Token ids to text, as a stream: incomplete UTF-8 is held back, invalid bytes come out as U+FFFD once.
 * Control tokens print nothing unless `show_control`. */
sluice_status sluice_detokenizer_open(const sluice_tokenizer *tokenizer, bool show_control,
                                      sluice_detokenizer **stream, sluice_error *err);
/* Text that became final; *text belongs to the stream and lives until its next call. */
sluice_status sluice_detokenizer_push(sluice_detokenizer *stream, int32_t id, const char **text,
                                      size_t *text_bytes, sluice_error *err);
sluice_status sluice_detokenizer_finish(sluice_detokenizer *stream, const char **text, size_t *text_bytes,
                                        sluice_error *err);
void sluice_detokenizer_close(sluice_detokenizer *stream);

typedef struct sluice_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} sluice_message;

/* Render messages with the model's chat template and tokenize: only the template's own text can become
 * control tokens. `add_generation_prompt` opens the assistant's turn. `text` may be NULL; otherwise it gets
 * the rendered text. Free *ids and *text with sluice_free(). */
sluice_status sluice_chat_encode(const sluice_tokenizer *tokenizer, const sluice_message *messages,
                                 size_t n_messages, bool add_generation_prompt, int32_t **ids, size_t *n_ids,
                                 char **text, sluice_error *err);

/* Read [{"role": …, "content": …}, …]. One allocation: free *messages with sluice_free(). */
sluice_status sluice_messages_parse(const char *json, size_t json_bytes, sluice_message **messages,
                                    size_t *n_messages, sluice_error *err);

/* ---- session: one timeline of tokens ---- */

sluice_status sluice_session_open(sluice_engine *engine, sluice_session **session, sluice_error *err);
void sluice_session_close(sluice_session *session);

/* Append tokens. Afterwards sluice_session_logits() belongs to the last of them. SLUICE_E_CONTEXT: they do
 * not fit; nothing was appended. SLUICE_E_CANCELLED: whole chunks before the cancel stay appended. */
sluice_status sluice_session_prefill(sluice_session *session, const int32_t *ids, size_t n_ids,
                                     sluice_error *err);

/* Gets the logits of every appended token in turn; `logits` has vocab_tokens values and lives for the call.
 */
typedef void (*sluice_logits_fn)(void *user, uint32_t position, const float *logits);

/* As sluice_session_prefill, and report the logits of each position. */
sluice_status sluice_session_score(sluice_session *session, const int32_t *ids, size_t n_ids,
                                   sluice_logits_fn fn, void *user, sluice_error *err);

/* Next-token logits after the last appended token (vocab_tokens values, after the model's soft cap), or NULL
 * before the first. Valid until the next call on the session. */
const float *sluice_session_logits(const sluice_session *session);

/* The tokens appended so far; owned by the session. */
const int32_t *sluice_session_tokens(const sluice_session *session, size_t *n_tokens);

/* Go back so that `n_tokens` remain. SLUICE_E_UNSUPPORTED: a sliding window has already forgotten what that
 * needs; nothing changed. Going back to 0 always works. Logits are unavailable until the next append. */
sluice_status sluice_session_rewind(sluice_session *session, size_t n_tokens, sluice_error *err);

/* Make the timeline equal `ids`, reusing the longest common prefix that the state allows. Afterwards the
 * logits of the last token are there: it is computed again unless they still are. `reused_tokens` may be
 * NULL. */
sluice_status sluice_session_sync(sluice_session *session, const int32_t *ids, size_t n_ids,
                                  size_t *reused_tokens, sluice_error *err);

typedef struct sluice_snapshot sluice_snapshot;

/* Copy the whole state; restoring gives the same bits as never having left. A snapshot fits only sessions of
 * the engine it came from. */
sluice_status sluice_session_snapshot(const sluice_session *session, sluice_snapshot **snapshot,
                                      sluice_error *err);
sluice_status sluice_session_restore(sluice_session *session, const sluice_snapshot *snapshot,
                                     sluice_error *err);
void sluice_snapshot_free(sluice_snapshot *snapshot);

/* End the running call with SLUICE_E_CANCELLED, looked at in every layer and every wait. Safe in a signal
 * handler and from any thread. The flag is lowered by sluice_session_uncancel(). */
void sluice_session_cancel(sluice_session *session);
void sluice_session_uncancel(sluice_session *session);

typedef struct sluice_session_stats {
    uint64_t prefill_tokens, prefill_ns, decode_tokens, decode_ns;
    uint64_t decode_read_bytes, prefill_read_bytes;
    uint64_t decode_expert_requests, decode_expert_hits;
    uint64_t wait_ns;                                     /* reads that no computation hid */
    uint64_t guesses, useful_guesses, wasted_guess_bytes; /* of lookahead_experts */
    /* Of drafting: passes with guesses, guesses in them, those that a drawn token was compared with, and
     * those that were it; distinct experts per layer that such passes needed. */
    uint64_t draft_rounds, draft_guesses, draft_tested, draft_accepted, draft_expert_requests;
} sluice_session_stats;

void sluice_session_stats_get(const sluice_session *session, sluice_session_stats *stats);

#define SLUICE_PHASES 10

/* Where the time of a session went; the phases of prefill and of decode add up to prefill_ns and decode_ns.
 */
typedef struct sluice_profile {
    const char *names[SLUICE_PHASES]; /* static storage */
    uint64_t prefill_ns[SLUICE_PHASES], decode_ns[SLUICE_PHASES];
} sluice_profile;

/* Measure phases from now on, or stop. Off when a session opens. */
void sluice_session_profile(sluice_session *session, bool on);
void sluice_session_profile_get(const sluice_session *session, sluice_profile *profile);

/* Record the experts of every layer of every token from now on into the file `path`, for sluice_bench and
 * sluice_cache_sim; a file that holds a trace of the same model is continued. NULL ends the recording and
 * says whether all of it was written; so does the next path. The file is complete after that only. */
sluice_status sluice_session_record_routes(sluice_session *session, const char *path, sluice_error *err);

/* Peak memory of the process as the kernel counts it (resident high-water mark), in bytes; 0 if unknown. */
uint64_t sluice_peak_memory_bytes(void);

/* ---- sampling and generation ---- */

typedef struct sluice_logit_bias {
    int32_t id;
    float bias;
} sluice_logit_bias;

/* Steps, in this order: logit bias; repetition, presence and frequency penalties over the tokens of the
 * session; then candidates by falling logit: top-p over the whole distribution, top-k, min-p; temperature on
 * the final draw. A zeroed structure is greedy with no penalty (0 means "off" for every field). */
typedef struct sluice_sampling {
    float temperature; /* 0: greedy */
    float top_p;       /* 0 or 1: off */
    float min_p;       /* 0: off */
    uint32_t top_k;    /* 0: off */
    float repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed; /* the draw at position p depends on (seed, p) alone, so a resumed run draws the same */
    const sluice_logit_bias *biases;
    size_t n_biases;
} sluice_sampling;

/* SLUICE_E_ARGUMENT names the field that is out of range. */
sluice_status sluice_sampling_check(const sluice_sampling *sampling, sluice_error *err);

typedef struct sluice_token_logprob {
    int32_t id;
    float logprob; /* natural logarithm, of the model's distribution at temperature 1 before any penalty */
} sluice_token_logprob;

/* Draw the next token from the session's logits without appending it. `top` (may be NULL) gets the `n_top`
 * likeliest tokens, best first. */
sluice_status sluice_session_sample(sluice_session *session, const sluice_sampling *sampling,
                                    sluice_token_logprob *choice, sluice_token_logprob *top, size_t n_top,
                                    sluice_error *err);

/* ---- structured output ---- */

typedef enum sluice_format {
    SLUICE_FORMAT_TEXT = 0, /* free */
    SLUICE_FORMAT_JSON,     /* any JSON object */
    SLUICE_FORMAT_SCHEMA,   /* JSON that a JSON Schema accepts */
    SLUICE_FORMAT_GBNF,     /* what a grammar in llama.cpp's notation accepts */
} sluice_format;

/* What may be generated, as an automaton over the vocabulary. It keeps what it has worked out, so use one
 * again for further generations; by one thread at a time. The tokenizer must outlive it. */
typedef struct sluice_constraint sluice_constraint;

/* `text` is the schema or the grammar (not looked at for SLUICE_FORMAT_JSON). A keyword that cannot be
 * honoured is refused by name, as is what would need too much time: SLUICE_E_UNSUPPORTED. SLUICE_E_BUDGET: it
 * needs more memory than the engine has set aside for grammars. */
sluice_status sluice_constraint_open(const sluice_tokenizer *tokenizer, sluice_format format,
                                     const char *text, size_t text_bytes, sluice_constraint **constraint,
                                     sluice_error *err);
void sluice_constraint_close(sluice_constraint *constraint);

/* ---- chat: tools, reasoning, structured answers ---- */

typedef enum sluice_thinking {
    SLUICE_THINKING_DEFAULT = 0, /* what the template does by itself */
    SLUICE_THINKING_ON,
    SLUICE_THINKING_OFF,
} sluice_thinking;

/* One request. Texts are JSON as the OpenAI chat API has it; NULL: not given. Zero the rest. */
typedef struct sluice_chat_request {
    const char *messages; /* a list of {"role", "content", "tool_calls", "tool_call_id", …} */
    size_t messages_bytes;
    const char *tools; /* a list of {"type": "function", "function": {…}} */
    size_t tools_bytes;
    const char *tool_choice; /* NULL or "auto", "none", "required", or the name of the function to call */
    bool one_call;           /* with "required": one call, not several */
    sluice_thinking thinking;
    uint32_t thinking_tokens; /* most tokens of reasoning, which is then closed; 0: no limit */
    sluice_format format;     /* of the answer, behind any reasoning */
    const char *shape;        /* the schema or grammar of `format` */
    size_t shape_bytes;
    const char *variables; /* an object: more variables for the template */
    size_t variables_bytes;
    bool no_generation_prompt; /* do not open the assistant's turn */
} sluice_chat_request;

/* A request made ready: its prompt as tokens, and what is needed to take the answer apart. By one thread at a
 * time; the tokenizer must outlive it. */
typedef struct sluice_chat sluice_chat;

/* Check a request and render it. SLUICE_E_UNSUPPORTED: the model's template has no place for what is asked,
 * or a schema cannot be honoured. */
sluice_status sluice_chat_open(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                               sluice_chat **chat, sluice_error *err);
void sluice_chat_close(sluice_chat *chat);
/* The prompt, as tokens and as text. Owned by the chat. */
const int32_t *sluice_chat_ids(const sluice_chat *chat, size_t *n_ids);
const char *sluice_chat_text(const sluice_chat *chat, size_t *text_bytes);

typedef enum sluice_delta_kind {
    SLUICE_DELTA_CONTENT = 0,
    SLUICE_DELTA_REASONING,
    SLUICE_DELTA_CALL,      /* a call begins: its id and name; its arguments follow as they become certain */
    SLUICE_DELTA_ARGUMENTS, /* the next part of a call's arguments, a JSON text; at most 1024 bytes */
    SLUICE_DELTA_CALL_END,  /* the call is complete and right. Before this it must not be acted upon */
    SLUICE_DELTA_MALFORMED, /* raw text of something that began as a call and is none; `call` is the one that
                               it had become, which is void, or SLUICE_CALL_NONE */
} sluice_delta_kind;

#define SLUICE_CALL_NONE UINT32_MAX

/* A piece of the answer, taken apart. The parts of a call's arguments, put together, are one JSON object
 * once SLUICE_DELTA_CALL_END has come. A call that a limit cuts gets neither that nor SLUICE_DELTA_MALFORMED.
 */
typedef struct sluice_delta {
    sluice_delta_kind kind;
    const char *text; /* of content, reasoning, arguments and what is malformed */
    size_t text_bytes;
    uint32_t call;         /* index of the call */
    const char *id, *name; /* of SLUICE_DELTA_CALL, NUL-terminated */
} sluice_delta;

/* ---- generation ---- */

typedef enum sluice_finish {
    SLUICE_FINISH_STOP = 0, /* the model ended its turn, or a stop string was completed */
    SLUICE_FINISH_LENGTH,   /* max_tokens, or the context is full */
    SLUICE_FINISH_CANCELLED,
    SLUICE_FINISH_TOOL_CALLS,     /* as STOP, and the answer has tool calls (with a chat) */
    SLUICE_FINISH_MALFORMED_CALL, /* as STOP, and something that began as a call is none (with a chat) */
} sluice_finish;

typedef struct sluice_piece {
    const char *text; /* new text, may be empty; never part of a stop string, never half a character */
    size_t text_bytes;
    sluice_token_logprob token;      /* id -1 in the last piece, which only flushes held-back text */
    const sluice_token_logprob *top; /* n_top_logprobs rows */
    uint32_t n_top;
    const sluice_delta *deltas; /* with a chat: the same text taken apart, as far as it is certain */
    size_t n_deltas;
} sluice_piece;

/* Return false to stop. */
typedef bool (*sluice_piece_fn)(void *user, const sluice_piece *piece);

typedef struct sluice_generate_options {
    sluice_sampling sampling;
    uint32_t max_tokens;      /* 0: until the context is full */
    const char *const *stops; /* stop strings; the text ends before them */
    size_t n_stops;
    const int32_t *stop_ids; /* NULL: the model's own */
    size_t n_stop_ids;
    uint32_t top_logprobs; /* 0..20 */
    bool ignore_stop_ids;
    bool show_control;
    /* NULL: none. The text ends only where the grammar lets it, unless a limit ends it (then finish says
     * SLUICE_FINISH_LENGTH); not with stop strings. */
    sluice_constraint *constraint;
    /* NULL: text only. Takes the answer apart, and shapes it as the request asked; not together with
     * `constraint`. */
    sluice_chat *chat;
} sluice_generate_options;

typedef struct sluice_generated {
    sluice_finish finish;
    uint32_t tokens;
    int32_t stop_id;     /* the id that ended it, or -1 */
    int32_t stop_string; /* index of the stop string that ended it, or -1 */
} sluice_generated;

/* Generate from the session's logits. The stopping token is not appended. A cancel is not an error: finish
 * says SLUICE_FINISH_CANCELLED. `fn` may be NULL. */
sluice_status sluice_generate(sluice_session *session, const sluice_generate_options *options,
                              sluice_piece_fn fn, void *user, sluice_generated *result, sluice_error *err);

/* ---- speed: benchmarks against limits, cache policies ---- */

/* Read whole experts at random places with the engine's reader for about `ns`. 0: there are no experts. */
sluice_status sluice_measure_drive(const char *install_dir, const sluice_engine_options *options, uint64_t ns,
                                   double *bytes_per_second, sluice_error *err);

/* Every combination of threads, slots, chunks and prompt lengths is one row. Lists that are NULL hold the one
 * value of the engine options, or its default. */
typedef struct sluice_bench_options {
    const uint32_t *prompt_tokens, *threads, *expert_slots, *prefill_chunks;
    size_t n_prompt_tokens, n_threads, n_expert_slots, n_prefill_chunks; /* prompts, none: one of 128 */
    uint32_t generated_tokens;                                           /* 0: 32 */
    uint32_t repetitions;                                                /* 0: 3 */
    bool cold; /* before every repetition: a new engine, and as little in the page cache as can be done */
    /* NULL: the router decides. A file of sluice_session_record_routes(), or "zipf:S" or "reuse:P": the
     * experts are taken from there, the answer is nonsense. */
    const char *route_trace;
    double guess_accuracy; /* of a lookahead's guesses over a trace; 0: 0.65, as the demo model's likelier
                              half of a layer's experts that are not in memory */
    bool profile;
    uint64_t seed; /* of prompts and made routes */
    sluice_watch watch;
} sluice_bench_options;

typedef enum sluice_page_cache {
    SLUICE_PAGE_CACHE_KEPT = 0,    /* not asked, or nothing worked */
    SLUICE_PAGE_CACHE_FILES,       /* the kernel was advised to forget the install's files */
    SLUICE_PAGE_CACHE_ALL_DROPPED, /* of the whole machine */
} sluice_page_cache;

/* Medians over the repetitions, each figure for itself. */
typedef struct sluice_bench_row {
    uint32_t prompt_tokens, generated_tokens, threads, expert_slots, experts_per_layer, prefill_chunk_tokens;
    uint32_t repetitions;
    bool cold;
    sluice_page_cache page_cache;
    double prefill_tokens_per_second, decode_tokens_per_second;
    double prefill_seconds, decode_step_seconds;
    double prefill_read_bytes, decode_read_bytes_per_token;
    double prefill_used_bytes; /* of the distinct experts that the prompt needs */
    double hit_rate;           /* of decode */
    double prefill_wait_seconds, decode_wait_seconds_per_token;
    /* Limits: measured in this run; and what a token needs, whatever the program. */
    double memory_bytes_per_second, drive_bytes_per_second; /* 0: not measurable */
    double experts_bytes_per_second; /* memory's, for experts drawn at random; 0: not all are in memory */
    double decode_touched_bytes_per_token; /* weights, keys, values, states */
    double decode_memory_ratio;  /* speed ÷ (memory rate ÷ touched bytes): 1 is all that memory allows */
    double decode_reading_ratio; /* time that reading alone would take, experts at their rate and the rest at
                                    memory's, ÷ time of a step; 0: as above */
    double decode_drive_ratio;   /* speed ÷ (drive rate ÷ bytes read per token); 0: nothing was read */
    uint64_t peak_bytes;         /* resident high-water mark of the process during the row */
    uint64_t plan_bytes;
    sluice_profile profile; /* sums over the repetitions, when asked for */
} sluice_bench_row;

typedef void (*sluice_bench_fn)(void *user, const sluice_bench_row *row);

/* With full verification the install is verified once, before, so that no hashing is measured. */
sluice_status sluice_bench(const char *install_dir, const sluice_engine_options *options,
                           const sluice_bench_options *bench, sluice_bench_fn fn, void *user,
                           sluice_error *err);

/* What leaves a full cache first. Per layer unless pooled; uses count for ever, or halve every so many
 * tokens. Belady's order knows the future: no policy can do better. */
typedef enum sluice_cache_policy {
    SLUICE_CACHE_LRU,
    SLUICE_CACHE_LFU,
    SLUICE_CACHE_LFU_DECAY_64,
    SLUICE_CACHE_LFU_DECAY_256,
    SLUICE_CACHE_LFU_DECAY_1024,
    SLUICE_CACHE_POOL_LRU,
    SLUICE_CACHE_POOL_LFU,
    SLUICE_CACHE_POOL_LFU_DECAY_256,
    SLUICE_CACHE_BELADY,
    SLUICE_CACHE_POOL_BELADY,
    SLUICE_CACHE_POLICIES
} sluice_cache_policy;

/* "lru", "pool-lfu"; static storage. */
const char *sluice_cache_policy_name(sluice_cache_policy policy);

typedef struct sluice_cache_sim_options {
    const char *trace; /* a file of sluice_session_record_routes(), or "zipf:S" or "reuse:P" */
    uint32_t layers, experts, top_k, tokens; /* of a made trace; tokens 0: 2048 */
    uint64_t seed;
    const uint32_t *slots; /* per layer; NULL: top_k and doubling */
    size_t n_slots;
} sluice_cache_sim_options;

typedef struct sluice_cache_sim_row {
    uint32_t slots, experts; /* per layer; pooled policies get layers times as many in one set */
    uint64_t tokens, requests, decode_requests;
    double hit_rate[SLUICE_CACHE_POLICIES]; /* of all requests: a prefill chunk asks for an expert once */
    double decode_hit_rate[SLUICE_CACHE_POLICIES]; /* of decode steps; 0 without any */
} sluice_cache_sim_row;

typedef void (*sluice_cache_sim_fn)(void *user, const sluice_cache_sim_row *row);

/* Replay a trace through every policy, a row per size. No weights are involved. */
sluice_status sluice_cache_sim(const sluice_cache_sim_options *options, sluice_cache_sim_fn fn, void *user,
                               sluice_error *err);

/* ---- truth: compare arithmetic, record and compare traces ---- */

typedef struct sluice_check_report {
    uint64_t positions; /* that were compared */
    double mean_kl, max_kl;
    double top1_agreement; /* 0..1 */
    int32_t worst_token;   /* the reference's best token where the divergence is largest */
    uint32_t worst_prompt, worst_position;
} sluice_check_report;

/* Token ids to check. Positions from `first` on are compared (0: all): a model is judged where it writes, and
 * what it would have guessed inside a question is noise for one that was trained on answers. Then the
 * reference goes on greedily for at most `answer_tokens`, both computing the same text. */
typedef struct sluice_prompt {
    const int32_t *ids;
    size_t n_ids, first;
    uint32_t answer_tokens;
} sluice_prompt;

/* Run every prompt in the default arithmetic and beside it in f32 activations with f32 KV; KL divergence is
 * of the reference from the default, in nats, per position. */
sluice_status sluice_check(const char *install_dir, const sluice_engine_options *options,
                           const sluice_prompt *prompts, size_t n_prompts, sluice_check_report *report,
                           sluice_error *err);

#define SLUICE_DIGEST_TEXT_BYTES 65

/* Run `ids` through a fresh session and write every layer's tensors and discrete choices under `output_dir`
 * (created; must not exist). `digest` gets 64 hexadecimal digits over names, shapes, types and bytes. */
sluice_status sluice_trace_record(sluice_engine *engine, const int32_t *ids, size_t n_ids,
                                  const char *output_dir, char digest[SLUICE_DIGEST_TEXT_BYTES],
                                  sluice_error *err);

typedef struct sluice_trace_difference {
    bool equal;
    char name[96];    /* of the first tensor that differs, in the order of computation */
    uint64_t element; /* flat index of its first differing element */
    char a[48], b[48];
    uint64_t ulps;    /* distance for floating-point tensors; otherwise 0 */
    uint32_t tensors; /* compared until then */
} sluice_trace_difference;

sluice_status sluice_trace_diff(const char *dir_a, const char *dir_b, sluice_trace_difference *difference,
                                sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
