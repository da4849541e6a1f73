/* A model hub from the command line: which argument means a repository, and what the environment says. */
#ifndef CLI_HUB_H
#define CLI_HUB_H

struct hub_source {
    const char *repo;    /* NULL: a directory */
    char *token;         /* owned; NULL: none */
    const char *ca_file; /* or a directory; NULL: the system's */
};

/* The repository or registry name that SOURCE means, or NULL for a directory. "hub:" in front forces it. */
const char *hub_repo_of(const char *source);
/* HF_TOKEN, or the file that HF_TOKEN_PATH names, or token in $HF_HOME or ~/.cache/huggingface;
 * SSL_CERT_FILE. */
void hub_read_environment(struct hub_source *hub);
void hub_release(struct hub_source *hub);

#endif
