/* The tokenizer of a random checkpoint. It is as large as a real one, in ids, merges and bytes of JSON,
 * because what it costs in memory and time at open is part of what is measured. */
#include "run/synth.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LETTERS = 26, STRING_MAX = 8 };

static const char HEAD[] =
    "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [";
static const char MIDDLE[] =
    "\n  ],\n  \"normalizer\": {\n    \"type\": \"Replace\",\n    \"pattern\": {\n      \"String\": \" \"\n  "
    "  },\n"
    "    \"content\": \"▁\"\n  },\n  \"pre_tokenizer\": {\n    \"type\": \"Split\",\n    \"pattern\": {\n"
    "      \"String\": \" \"\n    },\n    \"behavior\": \"MergedWithPrevious\",\n    \"invert\": false\n  "
    "},\n"
    "  \"post_processor\": null,\n  \"decoder\": {\n    \"type\": \"Sequence\",\n    \"decoders\": [\n"
    "      { \"type\": \"Replace\", \"pattern\": { \"String\": \"▁\" }, \"content\": \" \" },\n"
    "      { \"type\": \"ByteFallback\" },\n      { \"type\": \"Fuse\" }\n    ]\n  },\n"
    "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": \"<unk>\",\n"
    "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": true,\n"
    "    \"byte_fallback\": true,\n    \"ignore_merges\": false,\n    \"vocab\": {";
static const char MERGES[] = "\n    },\n    \"merges\": [";
static const char TAIL[] = "\n    ]\n  }\n}\n";

static bool put_quoted(struct str *s, const char *text)
{
    bool ok = str_putc(s, '"');
    for (const char *p = text; *p; p++)
        ok = ok && (*p == '"' || *p == '\\' ? str_putc(s, '\\') && str_putc(s, *p)
                    : *p == '\n'            ? str_puts(s, "\\n")
                                            : str_putc(s, *p));
    return ok && str_putc(s, '"');
}

/* The k-th string of letters of some length, in alphabetic order. */
static void letters_of(uint64_t k, uint32_t length, char out[STRING_MAX + 1])
{
    out[length] = '\0';
    for (uint32_t i = length; i-- > 0; k /= LETTERS)
        out[i] = (char)('a' + k % LETTERS);
}

/* Calls fn for every string of letters that has an id of its own, from two letters up. */
typedef bool (*letters_fn)(struct str *s, const char *letters, uint32_t length, uint32_t id);

static bool each_string(struct str *s, uint32_t id, uint32_t end, letters_fn fn)
{
    char letters[STRING_MAX + 1];
    uint64_t count = LETTERS;
    for (uint32_t length = 2; length <= STRING_MAX; length++) {
        count *= LETTERS;
        for (uint64_t k = 0; k < count; k++, id++) {
            if (id == end)
                return true;
            letters_of(k, length, letters);
            if (!fn(s, letters, length, id))
                return false;
        }
    }
    return id == end;
}

static bool put_token(struct str *s, const char *text, uint32_t id)
{
    return str_puts(s, id ? ",\n      " : "\n      ") && put_quoted(s, text) &&
           str_printf(s, ": %" PRIu32, id);
}

static bool put_string(struct str *s, const char *letters, uint32_t length, uint32_t id)
{
    (void)length;
    return put_token(s, letters, id);
}

static bool put_merge(struct str *s, const char *letters, uint32_t left, bool first)
{
    return str_printf(s, "%s\n      [\n        \"%.*s\",\n        \"%s\"\n      ]", first ? "" : ",",
                      (int)left, letters, letters + left);
}

/* Both ways to make the string from one letter and the rest. */
static bool put_merges(struct str *s, const char *letters, uint32_t length, uint32_t id)
{
    (void)id;
    bool first = s->p[s->len - 1] == '[';
    return put_merge(s, letters, length - 1, first) && (length == 2 || put_merge(s, letters, 1, false));
}

/* A control token, or "<unusedN>". */
static bool put_low_token(struct str *s, const struct full_control **next, uint32_t id)
{
    char unused[24];
    if ((*next)->text && (*next)->id == id)
        return put_token(s, (*next)++->text, id);
    (void)snprintf(unused, sizeof unused, "<unused%" PRIu32 ">", id);
    return put_token(s, unused, id);
}

static bool put_added(struct str *s, const struct full_control *control)
{
    bool ok = true;
    for (size_t i = 0; control[i].text && ok; i++)
        ok = str_printf(s, "%s\n    {\n      \"id\": %" PRIu32 ",\n      \"content\": ", i ? "," : "",
                        control[i].id) &&
             put_quoted(s, control[i].text) &&
             str_puts(s,
                      ",\n      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false,\n"
                      "      \"normalized\": false,\n      \"special\": true\n    }");
    return ok;
}

/* Ids that every vocabulary has: control tokens, "\n", the bytes, "▁", printable ASCII. */
static bool put_base(struct str *s, const struct full_size *full, uint32_t *id)
{
    const struct full_control *next = full->control;
    char text[8];
    bool ok = true;
    for (*id = 0; *id < full->control_ids; ++*id)
        ok = ok && put_low_token(s, &next, *id);
    ok = ok && put_token(s, "\n", (*id)++);
    for (unsigned byte = 0; byte < 256; byte++) {
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        ok = ok && put_token(s, text, (*id)++);
    }
    ok = ok && put_token(s, "▁", (*id)++);
    for (int c = '!'; c <= '~'; c++) {
        text[0] = (char)c;
        text[1] = '\0';
        ok = ok && put_token(s, text, (*id)++);
    }
    return ok;
}

sluice_status synth_tokenizer(const struct full_size *full, uint32_t vocab, struct str *s, sluice_error *err)
{
    uint32_t id = 0, least = full->control_ids + 1 + 256 + 1 + ('~' - '!' + 1);
    if (vocab < least)
        return err_set(err, SLUICE_E_UNSUPPORTED, "a vocabulary of %u ids is too small, %u are needed", vocab,
                       least);
    bool ok = str_puts(s, HEAD) && put_added(s, full->control) && str_puts(s, MIDDLE) &&
              put_base(s, full, &id) && each_string(s, id, vocab, put_string) && str_puts(s, MERGES) &&
              each_string(s, id, vocab, put_merges) && str_puts(s, TAIL);
    return ok ? SLUICE_OK : err_memory(err, s->len, "tokenizer.json");
}

sluice_status synth_tokenizer_config(const struct full_size *full, struct str *s, sluice_error *err)
{
    bool ok = str_puts(s, "{\n  \"bos_token\": ") &&
              (full->bos ? put_quoted(s, full->bos) : str_puts(s, "null")) &&
              str_puts(s, ",\n  \"eos_token\": ") && put_quoted(s, full->eos) &&
              str_printf(s, ",\n  \"add_bos_token\": %s\n}\n", full->bos ? "true" : "false");
    return ok ? SLUICE_OK : err_memory(err, s->len, "tokenizer_config.json");
}
