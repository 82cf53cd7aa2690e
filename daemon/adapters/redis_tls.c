/* SPDX-License-Identifier: MIT */
/* TLS to Redis by OpenSSL, under hiredis 1.x.
 *
 * hiredis' own contexts check that a certificate comes from a trusted CA, but
 * not whose it is: anybody with any certificate of that CA could stand in for
 * Redis. So sessions are made here, with the name that has to match, and given
 * to hiredis. Its words for what fails are those of errno, so the reason is asked
 * from OpenSSL, too.
 *
 * A session keeps the certificates with which it was made, so that they can be
 * loaded again at any time. */
#include "adapters/redis_tls.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/mem.h"

struct redis_tls {
    char *ca; /* owned, all of them */
    char *cert;
    char *key;
    char *name;
    SSL_CTX *context; /* owned; counted, by each session too */
};

/* ---- certificates ---- */

/* Why a file could not be loaded: the first error is the cause, what follows
 * tells who noticed. */
static const char *load_error(void)
{
    unsigned long e = ERR_peek_error();
    const char *reason = ERR_SYSTEM_ERROR(e) ? strerror(ERR_GET_REASON(e))
                                             : ERR_reason_error_string(e);

    return reason ? reason : "it cannot be used";
}

static int refuse(struct buf *why, const char *option, const char *file,
                  const char *reason)
{
    buf_printf(why, "redis.%s = \"%s\": %s", option, file, reason);
    return -1;
}

/* Asked for the passphrase of a key; else OpenSSL would ask the terminal. */
static int on_passphrase(char *out, int size, int writing, void *arg)
{
    bool *asked = arg;

    (void)out;
    (void)size;
    (void)writing;
    *asked = true;
    return -1;
}

static int load_ca(SSL_CTX *context, const char *file, struct buf *why)
{
    if (!*file) {
        if (SSL_CTX_set_default_verify_paths(context) == 1)
            return 0;
        buf_printf(why, "redis.tls_ca: the system's certificates: %s",
                   load_error());
        return -1;
    }
    if (SSL_CTX_load_verify_locations(context, file, NULL) == 1)
        return 0;
    return refuse(why, "tls_ca", file, load_error());
}

static int load_own(SSL_CTX *context, const char *cert, const char *key,
                    struct buf *why)
{
    bool encrypted = false;

    if (!*cert)
        return 0;
    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        return refuse(why, "tls_cert", cert, load_error());
    SSL_CTX_set_default_passwd_cb(context, on_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(context, &encrypted);
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1)
        return 0;
    return refuse(why, "tls_key", key,
                  encrypted ? "expected a key without a passphrase"
                            : load_error());
}

/* OpenSSL's own configuration may rule out what is asked for. */
static SSL_CTX *give_up(SSL_CTX *context, struct buf *why)
{
    buf_printf(why, "redis.address: TLS: %s", load_error());
    SSL_CTX_free(context);
    return NULL;
}

static SSL_CTX *load(const struct redis_tls *t, struct buf *why)
{
    SSL_CTX *context;

    ERR_clear_error();
    context = SSL_CTX_new(TLS_client_method());
    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1)
        return give_up(context, why);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (load_ca(context, t->ca, why) < 0 ||
        load_own(context, t->cert, t->key, why) < 0) {
        SSL_CTX_free(context);
        context = NULL;
    }
    ERR_clear_error();
    return context;
}

int redis_tls_reload(struct redis_tls *t, struct buf *why)
{
    SSL_CTX *context = load(t, why);

    if (!context)
        return -1;
    SSL_CTX_free(t->context);
    t->context = context;
    return 0;
}

struct redis_tls *redis_tls_new(const struct redis_tls_config *c,
                                struct buf *why)
{
    struct redis_tls *t = mem_zalloc(sizeof(*t));

    t->ca = mem_strdup(c->ca);
    t->cert = mem_strdup(c->cert);
    t->key = mem_strdup(c->key);
    t->name = mem_strdup(c->name);
    if (redis_tls_reload(t, why) == 0)
        return t;
    redis_tls_free(t);
    return NULL;
}

void redis_tls_free(struct redis_tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->context);
    free(t->ca);
    free(t->cert);
    free(t->key);
    free(t->name);
    free(t);
}

/* ---- sessions ---- */

static bool is_ip(const char *name)
{
    unsigned char ip[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, name, ip) == 1 ||
           inet_pton(AF_INET6, name, ip) == 1;
}

/* Addresses are not sent: the server name extension is for host names. */
static bool expect_name(SSL *session, const char *name)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(session);

    if (is_ip(name))
        return X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    X509_VERIFY_PARAM_set_hostflags(param,
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1 &&
           SSL_set_tlsext_host_name(session, name) == 1;
}

struct ssl_st *redis_tls_start(const struct redis_tls *t,
                               struct redisContext *c, char *why, size_t size)
{
    SSL *session;

    ERR_clear_error();
    session = SSL_new(t->context);
    if (session && expect_name(session, t->name) &&
        redisInitiateSSL(c, session) == REDIS_OK)
        return session;
    if (!session || !redis_tls_failure(t, session, why, size))
        snprintf(why, size, "%s", c->err ? c->errstr : "TLS cannot begin");
    SSL_free(session);
    return NULL;
}

bool redis_tls_is_open(const struct ssl_st *session)
{
    return SSL_is_init_finished(session);
}

/* ---- errors ---- */

void redis_tls_forget_errors(void)
{
    ERR_clear_error();
}

static void refused_certificate(const struct redis_tls *t, long verdict,
                                char *why, size_t size)
{
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
        verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
        snprintf(why, size, "certificate refused: it is not for %s", t->name);
    else
        snprintf(why, size, "certificate refused: %s",
                 X509_verify_cert_error_string(verdict));
}

bool redis_tls_failure(const struct redis_tls *t, const struct ssl_st *session,
                       char *why, size_t size)
{
    unsigned long e = ERR_peek_last_error();
    long verdict = SSL_get_verify_result(session);

    if (verdict != X509_V_OK) {
        refused_certificate(t, verdict, why, size);
        return true;
    }
    if (ERR_GET_LIB(e) != ERR_LIB_SSL)
        return false;
    switch (ERR_GET_REASON(e)) {
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
        snprintf(why, size, "%s",
                 redis_tls_is_open(session)
                     ? "Server closed the connection"
                     : "Server closed the connection in the TLS handshake");
        break;
    case SSL_R_WRONG_VERSION_NUMBER:
        snprintf(why, size, "the server does not speak TLS there");
        break;
    default:
        snprintf(why, size, "TLS: %s", ERR_reason_error_string(e));
        break;
    }
    return true;
}
