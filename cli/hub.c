#include "hub.h"

#include "out.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOKEN_BYTES_MAX 4096
#define FORCED          "hub:"

static bool is_plain(const char *text, size_t n)
{
    if (n == 0 || text[0] == '.' || text[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", text[i]) == NULL)
            return false;
    return true;
}

const char *hub_repo_of(const char *source)
{
    struct stat info;
    sluice_model model;
    if (strncmp(source, FORCED, sizeof FORCED - 1) == 0)
        return source + sizeof FORCED - 1;
    if (stat(source, &info) == 0)
        return NULL;
    if (sluice_model_find(source, &model))
        return source;
    const char *slash = strchr(source, '/');
    bool repo =
        slash != NULL && is_plain(source, (size_t)(slash - source)) && is_plain(slash + 1, strlen(slash + 1));
    return repo ? source : NULL;
}

/* A token is one word; anything else would not pass as a header. */
static char *clean_token(const char *text)
{
    size_t start = strspn(text, " \t\r\n"), n = strcspn(text + start, " \t\r\n");
    if (n == 0 || text[start + n + strspn(text + start + n, " \t\r\n")] != '\0')
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (text[start + i] < 0x21 || text[start + i] > 0x7E)
            return NULL;
    char *token = must_copy(text + start);
    token[n] = '\0';
    return token;
}

static char *token_of_file(const char *path)
{
    char text[TOKEN_BYTES_MAX];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return clean_token(text);
}

static char *token_of_home(void)
{
    static const struct {
        const char *variable, *suffix;
    } PLACES[] = {
        {"HF_TOKEN_PATH", ""},
        {"HF_HOME", "/token"},
        {"XDG_CACHE_HOME", "/huggingface/token"},
        {"HOME", "/.cache/huggingface/token"},
    };
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        char path[PATH_MAX];
        const char *value = getenv(PLACES[i].variable);
        if (value == NULL || value[0] == '\0')
            continue;
        int n = snprintf(path, sizeof path, "%s%s", value, PLACES[i].suffix);
        return n > 0 && (size_t)n < sizeof path ? token_of_file(path) : NULL;
    }
    return NULL;
}

/* The names that OpenSSL, curl and Python's clients go by, the one that messages ask for first. */
static const char *certificates(void)
{
    static const char *const NAMES[] = {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
                                        "SSL_CERT_DIR"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *value = getenv(NAMES[i]);
        if (value != NULL && value[0] != '\0')
            return value;
    }
    return NULL;
}

void hub_read_environment(struct hub_source *hub)
{
    const char *token = getenv("HF_TOKEN");
    hub->token = token != NULL && token[0] != '\0' ? clean_token(token) : token_of_home();
    if (token != NULL && token[0] != '\0' && hub->token == NULL)
        notice("HF_TOKEN is not used: it is not one word of printable characters.");
    hub->ca_file = certificates();
}

void hub_release(struct hub_source *hub)
{
    free(hub->token);
    hub->token = NULL;
}
