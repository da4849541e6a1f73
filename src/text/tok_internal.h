/* What the files of the tokenizer share. tokenizer.json becomes four immutable parts: the vocabulary with its
 * merges (tok_vocab.c), the added tokens (tok_added.c), the chains of normalizers and pre-tokenizers
 * (tok_norm.c, tok_pre.c) and the decoder (tok_decode.c). Encoding keeps all that changes in a struct
 * tok_work, one per call. */
#ifndef TEXT_TOK_INTERNAL_H
#define TEXT_TOK_INTERNAL_H

#include "base/json.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#define TOK_FILE "tokenizer.json"

enum {
    TOK_IDS_MAX = 1 << 22,    /* ids are below this; real vocabularies end before 300,000 */
    TOK_MERGES_MAX = 1 << 23, /* real ones have up to 515,000 */
    TOK_OPS_MAX = 32,         /* steps of one chain */
    TOK_DIRECT = 0x800,       /* code points whose token is found without hashing */
};
#define TOK_NONE            UINT32_MAX
#define TOK_TEXT_MAX        ((size_t)1 << 30) /* bytes of one text */
#define TOK_ADDED_BYTES_MAX 4096              /* of one added token */

/* ---- matcher: what Split, Replace and their like look for ---- */

enum match_kind { MATCH_LITERAL, MATCH_REGEX, MATCH_CLASS };

struct matcher {
    enum match_kind kind;
    char *text; /* literal */
    size_t text_bytes;
    struct regex *regex;
    bool (*in_class)(uint32_t cp); /* each code point of the class is one match */
};

/* Walks over the matches of one text. Zero it to start. */
struct match_walk {
    size_t at, last_end;
    bool any;
};

sluice_status matcher_literal(struct matcher *m, const char *text, size_t n, const char *where,
                              sluice_error *err);
/* {"String": …} or {"Regex": …} */
sluice_status matcher_from_json(struct matcher *m, const json_t *pattern, const char *where,
                                sluice_error *err);
void matcher_close(struct matcher *m);
sluice_status matcher_next(const struct matcher *m, struct regex_run *run, struct match_walk *walk,
                           const char *text, size_t n, bool *found, size_t *start, size_t *end,
                           sluice_error *err);

/* ---- normalizers ---- */

enum norm_kind { NORM_FORM, NORM_REPLACE, NORM_PREPEND, NORM_LOWERCASE, NORM_STRIP };

struct norm_op {
    enum norm_kind kind;
    enum uni_form form;
    struct matcher matcher;
    char *content; /* of Replace and Prepend */
    size_t content_bytes;
    bool left, right; /* of Strip */
};

struct norm_chain {
    struct norm_op *ops;
    size_t n;
};

/* A text with one mark per byte (1: may be part of a control token); no marks at all when nobody asks. */
struct marked_text {
    struct str text, marks;
};

sluice_status norm_open(struct norm_chain *chain, const json_t *spec, sluice_error *err);
void norm_close(struct norm_chain *chain);
/* Normalize in place; `spare` is scratch. with_marks: text->marks is kept up. */
sluice_status norm_apply(const struct norm_chain *chain, struct regex_run *run, struct marked_text *text,
                         struct marked_text *spare, bool with_marks, sluice_error *err);

/* ---- pre-tokenizers ---- */

enum pre_kind { PRE_SPLIT, PRE_PREFIX_SPACE, PRE_BYTES, PRE_METASPACE, PRE_FIXED };

enum pre_behavior {
    BEHAVE_REMOVED,
    BEHAVE_ISOLATED,
    BEHAVE_MERGED_WITH_PREVIOUS,
    BEHAVE_MERGED_WITH_NEXT,
    BEHAVE_CONTIGUOUS,
};

enum pre_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct pre_op {
    enum pre_kind kind;
    struct matcher matcher;
    enum pre_behavior behavior;
    bool invert;
    enum pre_scheme scheme;
    char replacement[5]; /* of Metaspace: one character */
    size_t length;       /* of FixedLength, in code points */
};

struct pre_chain {
    struct pre_op *ops;
    size_t n;
};

struct piece {
    size_t at, bytes;
    bool first; /* starts where the whole text starts */
};

struct span {
    size_t at, end;
    bool match;
};

struct pieces {
    struct str text;
    struct piece *v;
    size_t n, cap;
};

struct pre_work {
    struct pieces now, next; /* the result is in `now` */
    struct span *spans;
    size_t n_spans, cap_spans;
};

sluice_status pre_open(struct pre_chain *chain, const json_t *spec, sluice_error *err);
void pre_close(struct pre_chain *chain);
sluice_status pre_apply(const struct pre_chain *chain, struct regex_run *run, const char *text, size_t n,
                        bool first, struct pre_work *work, sluice_error *err);
void pre_work_close(struct pre_work *work);

/* The byte-level alphabet: every byte has a printable code point, and back (-1: not one of them). */
uint32_t bytelevel_code(unsigned char byte);
int bytelevel_byte(uint32_t cp);

/* Metaspace's shared fields, also read by its decoder. */
sluice_status metaspace_fields(const json_t *spec, char replacement[5], enum pre_scheme *scheme, bool *split,
                               sluice_error *err);

/* ---- vocabulary and merges ---- */

struct merge {
    uint32_t left, right, merged;
};

/* Spellings lie in `pool` in the order of their ids, each ended by a NUL; id's is
 * pool[offset[id] .. offset[id + 1] - 1), and an id without one has offset[id] == offset[id + 1]. */
struct vocab {
    char *pool;
    uint32_t *offset;
    uint32_t n_ids;             /* highest id + 1 */
    uint32_t *slots, slot_mask; /* spelling to id; TOK_NONE: free */
    unsigned char *in_model;    /* one bit per id: the model itself knows it */
    struct merge *merges;       /* by rank */
    uint32_t n_merges, cap_merges;
    uint32_t *merge_slots, merge_mask; /* pair to rank */
    uint32_t direct[TOK_DIRECT];       /* of one-character spellings the model knows */
    uint32_t bytes[256];               /* of "<0xHH>", for byte fallback */
};

static inline const char *vocab_text(const struct vocab *v, uint32_t id, size_t *n)
{
    if (id >= v->n_ids || v->offset[id] == v->offset[id + 1])
        return NULL;
    *n = v->offset[id + 1] - v->offset[id] - 1;
    return v->pool + v->offset[id];
}

static inline bool vocab_in_model(const struct vocab *v, uint32_t id)
{
    return v->in_model[id / 8] >> (id % 8) & 1;
}

/* Reads model.vocab and added_tokens; merges come later, when the control tokens are known. */
sluice_status vocab_open(struct vocab *v, const json_t *model_vocab, const json_t *added, sluice_error *err);
void vocab_close(struct vocab *v);
/* Any token, or TOK_NONE. */
uint32_t vocab_find(const struct vocab *v, const char *text, size_t n);
/* Merges come in parts: room for `count` first, then any number of arrays of them. Those that would make a
 * control token are left out: plain text must never become one. */
sluice_status vocab_reserve_merges(struct vocab *v, size_t count, sluice_error *err);
sluice_status vocab_add_merges(struct vocab *v, const json_t *merges, const unsigned char *flags,
                               sluice_error *err);
/* Fill `direct` and `bytes`, control tokens left out. */
void vocab_index(struct vocab *v, const unsigned char *flags);
/* Rank of a pair, or TOK_NONE. */
uint32_t vocab_merge(const struct vocab *v, uint32_t left, uint32_t right);

/* ---- added tokens ---- */

enum tok_flag {
    TOK_ADDED = 1,
    TOK_SPECIAL = 2, /* says the file: decoding hides it */
    TOK_CONTROL = 4, /* special, or markup by its looks: only trusted text contains it */
    TOK_LSTRIP = 8,
    TOK_RSTRIP = 16,
    TOK_SINGLE_WORD = 32,
    TOK_NORMALIZED = 64,
};

/* One sorted list of contents; a search narrows a range of it byte by byte. */
struct added_set {
    struct added_entry {
        uint32_t id, bytes;
        const char *text; /* the vocabulary's, or of `owned` */
    } * v;
    size_t n;
    char *owned;
    uint32_t first[257]; /* v[first[b] .. first[b + 1]) start with byte b */
};

struct added_match {
    uint32_t id;
    size_t start, end; /* with the white space that lstrip and rstrip take */
};

struct added_walk {
    size_t at;    /* where the search goes on */
    size_t taken; /* end of the last match, its white space included */
};

sluice_status added_flags(const struct vocab *v, const json_t *added, unsigned char *flags,
                          sluice_error *err);
/* The set of tokens whose TOK_NORMALIZED equals `normalized`. */
sluice_status added_open(struct added_set *set, const struct vocab *v, const unsigned char *flags,
                         bool normalized, const struct norm_chain *norm, sluice_error *err);
void added_close(struct added_set *set);
/* The next token in text. trusted: NULL, then `special` speaks for all. False: none. */
bool added_next(const struct added_set *set, const unsigned char *flags, const char *text, size_t n,
                const unsigned char *trusted, bool special, struct added_walk *walk,
                struct added_match *match);

/* ---- byte pair encoding ---- */

struct bpe_options {
    bool byte_fallback, fuse_unk, ignore_merges;
    uint32_t unk; /* TOK_NONE: none; such characters are then left out, as the model does */
};

struct bpe_symbol {
    uint32_t id, previous, next;
};

/* Positions that wait for the merge of one rank. */
struct bpe_bucket {
    uint32_t rank, head, tail; /* nodes */
    bool sorted;
};

struct bpe_node {
    uint32_t at, next;
};

struct bpe_work {
    struct bpe_symbol *symbols;
    size_t n, cap;
    struct bpe_node *nodes;
    size_t n_nodes, cap_nodes;
    uint32_t free_node;
    struct bpe_bucket *buckets;
    size_t n_buckets, cap_buckets;
    uint32_t *slots; /* rank to bucket, open addressing */
    size_t n_slots;
    uint32_t *heap; /* buckets that are not empty, the lowest rank first */
    size_t n_heap, cap_heap;
};

sluice_status bpe_encode(const struct vocab *v, const struct bpe_options *options, const unsigned char *flags,
                         const char *text, size_t n, struct bpe_work *work, struct ids *ids,
                         sluice_error *err);
void bpe_work_close(struct bpe_work *work);

/* ---- decoder ---- */

enum decode_join {
    DECODE_PLAIN,    /* spellings, each behind the last */
    DECODE_SPACED,   /* no decoder: Hugging Face joins with spaces */
    DECODE_METASPACE /* the first token loses its replacement characters */
};

struct decoder {
    enum decode_join join;
    char replacement[5]; /* of Metaspace */
    char strip[5];       /* this character is taken off the start of the text … */
    uint32_t strip_max;  /* … at most this often */
    char *pool;          /* bytes of every token: pool[offset[id] .. offset[id + 1]) */
    uint32_t *offset;
};

sluice_status decoder_open(struct decoder *d, const json_t *spec, const struct tokenizer *tokenizer,
                           sluice_error *err);
void decoder_close(struct decoder *d);

/* ---- reading the file ---- */

/* Half a million merges make a tree of 200 MB. So model.merges is cut out of the text, and read in parts. */
struct tok_document {
    json_t *root;       /* the file with an empty model.merges, unless `whole` */
    const char *merges; /* what stood between its brackets */
    size_t merges_bytes, n_merges;
    bool whole; /* nothing was cut: the text is not laid out as expected */
};

sluice_status tok_document_open(struct tok_document *document, const char *json, size_t bytes,
                                sluice_error *err);
void tok_document_close(struct tok_document *document);
sluice_status tok_document_merges(const struct tok_document *document, struct vocab *v,
                                  const unsigned char *flags, sluice_error *err);

/* ---- the whole ---- */

struct tokenizer {
    struct vocab vocab;
    unsigned char *flags; /* enum tok_flag by id */
    struct norm_chain norm;
    struct pre_chain pre;
    struct added_set raw, normalized;
    struct bpe_options bpe;
    struct decoder decoder;
    bool normalized_control; /* some control token is matched after normalization: marks must follow */
    int32_t bos;
    bool adds_bos;
};

/* "type" of a JSON component. */
sluice_status tok_type(const json_t *spec, const char *part, const char **type, sluice_error *err);
/* An optional boolean member. */
sluice_status tok_bool(const json_t *spec, const char *key, bool fallback, bool *out, sluice_error *err);
/* {"content": …} of one character. */
sluice_status tok_char(const json_t *spec, const char *key, char out[5], sluice_error *err);

#endif
