/* Installs over TLS, from nginx on loopback: HTTP/2, whose certificates are trusted, redirects that leave
 * https, and whom the token is told. Skipped where there is no nginx. */
#include "hub_fixture.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/prctl.h>

#define NGINX "/usr/sbin/nginx"

/* MOVED redirects to HUB under another name, DOWN to PLAIN. */
enum server { HUB, MOVED, DOWN, PLAIN, OTHER_NAME, EXPIRED, SERVERS };

static char *snapshot, *root, *whole;
static uint16_t ports[SERVERS];
static pid_t nginx;

/* ---- certificates ---- */

static void add_extension(X509 *cert, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void write_certificate(X509 *cert, const char *path)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, cert), 1);
    assert_int_equal(fclose(file), 0);
}

/* NAME.pem and NAME.key, signed by itself, and NAME.d/HASH.0 as a directory of certificates has it. */
static void make_certificate(const char *name, const char *hosts, long from_s, long to_s)
{
    char file[64];
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    assert_true(key && cert);
    assert_int_equal(X509_set_version(cert, X509_VERSION_3), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(cert), 1), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), from_s));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), to_s));
    assert_int_equal(X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                                                (const unsigned char *)name, -1, -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(cert, X509_get_subject_name(cert)), 1);
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    add_extension(cert, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(cert, NID_subject_alt_name, hosts);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    (void)snprintf(file, sizeof file, "%s.pem", name);
    write_certificate(cert, fx_path(root, file));
    (void)snprintf(file, sizeof file, "%s.d", name);
    assert_int_equal(mkdir(fx_path(root, file), 0700), 0);
    (void)snprintf(file, sizeof file, "%s.d/%08lx.0", name, X509_subject_name_hash(cert));
    write_certificate(cert, fx_path(root, file));
    (void)snprintf(file, sizeof file, "%s.key", name);
    FILE *out = fopen(fx_path(root, file), "wb");
    assert_non_null(out);
    assert_int_equal(PEM_write_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(out), 0);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* ---- the server ---- */

static int listen_anywhere(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* handed down to nginx */
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, length), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void put_server(FILE *f, enum server which, const char *certificate, const char *body)
{
    (void)fprintf(f, "server {\n listen 127.0.0.1:%u%s;\n", ports[which], certificate ? " ssl http2" : "");
    if (certificate)
        (void)fprintf(f, " ssl_certificate %s/%s.pem; ssl_certificate_key %s/%s.key;\n", root, certificate,
                      root, certificate);
    (void)fprintf(f, "%s}\n", body);
}

static void write_configuration(void)
{
    static const char *const SCRATCH[] = {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"};
    char files[2048], moved[128], down[128];
    FILE *f = fopen(fx_path(root, "nginx.conf"), "w");
    assert_non_null(f);
    (void)snprintf(files, sizeof files,
                   " location ~ ^/owner/small/resolve/[^/]+/(.*)$ {\n  alias %s/$1;\n"
                   "  add_header X-Repo-Commit " HUB_COMMIT ";\n }\n",
                   snapshot);
    (void)snprintf(moved, sizeof moved, " return 302 https://localhost:%u$request_uri;\n", ports[HUB]);
    (void)snprintf(down, sizeof down, " return 302 http://127.0.0.1:%u$request_uri;\n", ports[PLAIN]);
    (void)fprintf(f,
                  "daemon off; user root root; worker_processes 1; pid %s/pid; error_log "
                  "%s/error.log;\nevents {}\nhttp {\n"
                  " log_format row '$server_port $server_protocol $http_authorization.';\n"
                  " access_log %s/access.log row;\n",
                  root, root, root);
    for (size_t i = 0; i < sizeof SCRATCH / sizeof *SCRATCH; i++)
        (void)fprintf(f, " %s_temp_path %s/scratch;\n", SCRATCH[i], root);
    put_server(f, HUB, "hub", files);
    put_server(f, MOVED, "hub", moved);
    put_server(f, DOWN, "hub", down);
    put_server(f, PLAIN, NULL, files);
    put_server(f, OTHER_NAME, "elsewhere", files);
    put_server(f, EXPIRED, "expired", files);
    (void)fprintf(f, "}\n");
    assert_int_equal(fclose(f), 0);
}

/* Its sockets are listening already, so that nobody waits for it and no port is taken by another. (Without a
 * master process, nginx 1.22 crashes on sockets that it inherits.) */
static void start_nginx(void)
{
    char sockets[128];
    size_t n = 0;
    int fds[SERVERS];
    for (size_t i = 0; i < SERVERS; i++) {
        fds[i] = listen_anywhere(&ports[i]);
        n += (size_t)snprintf(sockets + n, sizeof sockets - n, "%d;", fds[i]);
    }
    write_configuration();
    const char *conf = fx_path(root, "nginx.conf"), *log = fx_path(root, "error.log");
    nginx = fork();
    assert_true(nginx >= 0);
    if (nginx == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void)setenv("NGINX", sockets, 1);
        (void)execl(NGINX, "nginx", "-e", log, "-c", conf, (char *)NULL);
        _exit(127);
    }
    for (size_t i = 0; i < SERVERS; i++)
        (void)close(fds[i]);
}

static int set_up(void **state)
{
    (void)state;
    if (access(NGINX, X_OK) != 0)
        return 0;
    hub_unset_proxies();
    snapshot = fx_snapshot();
    root = fx_temp_fast();
    whole = fx_path(root, "whole.gturbo");
    assert_ok(fx_install(snapshot, whole, err));
    make_certificate("hub", "IP:127.0.0.1,DNS:localhost", -3600, 86400);
    make_certificate("elsewhere", "DNS:elsewhere.example", -3600, 86400);
    make_certificate("expired", "IP:127.0.0.1", -7200, -3600);
    start_nginx();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!nginx)
        return 0;
    (void)kill(nginx, SIGTERM);
    (void)waitpid(nginx, NULL, 0);
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

#define needs_nginx()                                                                                        \
    do {                                                                                                     \
        if (!nginx)                                                                                          \
            skip();                                                                                          \
    } while (0)

/* ---- installs ---- */

static struct hub_run run_from(enum server which, const char *certificates)
{
    static char url[64];
    struct hub_run run = {.url = url, .limits = hub_limits(), .range_bytes = 4096};
    (void)snprintf(url, sizeof url, "http%s://127.0.0.1:%u", which == PLAIN ? "" : "s", ports[which]);
    run.limits.ca_file = fx_path(root, certificates);
    run.install.output_dir = fx_path(root, "hub.gturbo");
    (void)truncate(fx_path(root, "access.log"), 0);
    return run;
}

static void assert_arrived(const struct hub_run *run)
{
    static const char *const SAME[] = {RESIDENT_NAME, "packed_experts/layer_01.bin",
                                       "tokenizer/tokenizer.json"};
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        size_t n, m;
        unsigned char *a = fx_read(fx_path(whole, SAME[i]), &n);
        unsigned char *b = fx_read(fx_path(run->install.output_dir, SAME[i]), &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
    hub_wipe(run->install.output_dir);
}

/* Requests that the server saw, all of them with that protocol and that Authorization ("-": none). */
static unsigned seen(enum server which, const char *protocol, const char *authorization)
{
    unsigned n = 0;
    size_t bytes;
    char want[128];
    char *log = (char *)fx_read(fx_path(root, "access.log"), &bytes), *save = NULL;
    (void)snprintf(want, sizeof want, " %s %s.", protocol, authorization);
    for (char *line = strtok_r(log, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *end = line;
        if (strtoul(line, &end, 10) != ports[which])
            continue;
        if (strcmp(end, want) != 0)
            fx_fail("server %d was asked with \"%s\", not \"%s\"", (int)which, end, want);
        n++;
    }
    free(log);
    return n;
}

static void arrives_over_http2(void **state)
{
    (void)state;
    needs_nginx();
    static const char *const CERTIFICATES[] = {"hub.pem", "hub.d"}; /* a file, a directory */
    for (size_t i = 0; i < 2; i++) {
        struct hub_run run = run_from(HUB, CERTIFICATES[i]);
        run.limits.token = "hf_secret";
        assert_ok(hub_install(&run, NULL, err));
        assert_arrived(&run);
        assert_true(seen(HUB, "HTTP/2.0", "Bearer hf_secret") > 20);
    }
}

static void redirects_drop_the_token(void **state)
{
    (void)state;
    needs_nginx();
    struct hub_run run = run_from(MOVED, "hub.pem");
    run.limits.token = "hf_secret";
    assert_ok(hub_install(&run, NULL, err));
    assert_arrived(&run);
    assert_true(seen(MOVED, "HTTP/2.0", "Bearer hf_secret") > 0);
    assert_true(seen(HUB, "HTTP/2.0", "-") > 20);
}

static void https_is_not_left(void **state)
{
    (void)state;
    needs_nginx();
    struct hub_run run = run_from(DOWN, "hub.pem");
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_IO,
                 "to an address that is not https, which is refused");
    assert_int_equal(seen(DOWN, "HTTP/2.0", "-"), 1);
    assert_int_equal(seen(PLAIN, "HTTP/1.1", "-"), 0);
    hub_wipe(run.install.output_dir);
    /* The same bytes are there for whoever asks for http himself. */
    run = run_from(PLAIN, "hub.pem");
    assert_ok(hub_install(&run, NULL, err));
    assert_arrived(&run);
    assert_true(seen(PLAIN, "HTTP/1.1", "-") > 20);
}

static void certificates_are_checked(void **state)
{
    (void)state;
    needs_nginx();
    static const struct {
        enum server server;
        const char *trusted, *words;
    } ROWS[] = {
        {HUB, "elsewhere.pem", "cannot be trusted"},
        {HUB, "elsewhere.d", "cannot be trusted"},
        {OTHER_NAME, "elsewhere.pem", "cannot be trusted"},
        {EXPIRED, "expired.pem", "certificate has expired"},
        {HUB, "hub.key", "name the certificates to trust in SSL_CERT_FILE"},
        {HUB, "nothing.pem", "cannot read the certificates"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct hub_run run = run_from(ROWS[i].server, ROWS[i].trusted);
        run.limits.token = "hf_secret";
        assert_fails(hub_install(&run, NULL, err), SLUICE_E_IO, ROWS[i].words);
        assert_int_equal(seen(ROWS[i].server, "", ""), 0); /* nothing was asked, and no token told */
        hub_wipe(run.install.output_dir);
    }
    /* The system's certificates do not vouch for ours. */
    struct hub_run run = run_from(HUB, "hub.pem");
    run.limits.ca_file = NULL;
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_IO, "cannot be trusted");
    hub_wipe(run.install.output_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrives_over_http2),
        cmocka_unit_test(redirects_drop_the_token),
        cmocka_unit_test(https_is_not_left),
        cmocka_unit_test(certificates_are_checked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
