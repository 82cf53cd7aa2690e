/* SPDX-License-Identifier: MIT */
/* Addresses as they stand in the configuration. */
#include "core/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/num.h"

/* What follows the prefix, or NULL. */
static const char *after(const char *s, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(s, prefix, len) == 0 ? s + len : NULL;
}

static const char *parse_path(const char *path, struct address *a)
{
    size_t len = strlen(path);

    if (path[0] != '/' || !path[1])
        return "expected unix: and an absolute path";
    if (len > ADDRESS_PATH_MAX)
        return "expected a socket path of at most 107 bytes";
    memcpy(a->path, path, len + 1);
    return NULL;
}

static const char *parse_port(const char *s, struct address *a)
{
    int64_t port;

    if (num_parse_i64(s, strlen(s), &port) < 0 || port < 1 || port > 65535)
        return "expected a port from 1 to 65535";
    a->port = (int)port;
    return NULL;
}

/* To OpenSSL a name with a dot in front is any name of that domain. */
static bool is_host_name(const char *s)
{
    if (*s == '.')
        return false;
    for (; *s; s++) {
        if (!isalnum((unsigned char)*s) && !strchr("-._", *s))
            return false;
    }
    return true;
}

/* A link-local address may name its interface: fe80::1%eth0. */
static bool is_ipv6(const char *s)
{
    char digits[INET6_ADDRSTRLEN];
    size_t len = strcspn(s, "%");
    struct in6_addr in6;

    if (len >= sizeof(digits) || (s[len] == '%' && !is_host_name(s + len + 1)))
        return false;
    memcpy(digits, s, len);
    digits[len] = '\0';
    return inet_pton(AF_INET6, digits, &in6) == 1;
}

bool address_is_host(const char *s)
{
    return *s && (is_host_name(s) || is_ipv6(s));
}

static bool is_ip_or_localhost(const char *s)
{
    struct in_addr in4;

    return strcasecmp(s, "localhost") == 0 || inet_pton(AF_INET, s, &in4) == 1;
}

bool address_is_no_name(const char *host)
{
    bool bracketed = host[0] == '[';
    const char *from = host + bracketed;
    size_t len = strcspn(from, bracketed ? "]" : ":");
    const char *rest = from + len + (bracketed && from[len]);
    char text[INET6_ADDRSTRLEN];

    if (len >= sizeof(text) || (bracketed && rest[-1] != ']') ||
        (*rest && *rest != ':') || rest[strspn(rest, ":0123456789")])
        return false;
    memcpy(text, from, len);
    text[len] = '\0';
    return bracketed ? is_ipv6(text) : is_ip_or_localhost(text);
}

static const char *parse_host(const char *s, size_t len, struct address *a)
{
    bool bracketed = len >= 2 && s[0] == '[' && s[len - 1] == ']';

    if (bracketed) {
        s++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof(a->host))
        return "expected a host name of 1 to 255 bytes before the port";
    memcpy(a->host, s, len);
    a->host[len] = '\0';
    if (bracketed)
        return is_ipv6(a->host) ? NULL : "expected an IPv6 address in [ ]";
    if (memchr(s, ':', len))
        return "expected unix:/path or tcp:host:port, with an IPv6 address "
               "in [ ]";
    return is_host_name(a->host) ? NULL : "expected a host name or IP address";
}

static const char *parse_host_port(const char *s, struct address *a)
{
    const char *colon = strrchr(s, ':');
    const char *why;

    if (!colon)
        return "expected unix:/path or tcp:host:port";
    why = parse_host(s, (size_t)(colon - s), a);
    return why ? why : parse_port(colon + 1, a);
}

int address_parse(const char *s, struct address *a_r, const char **why_r)
{
    struct address a = {.kind = ADDRESS_TCP};
    const char *rest;

    if ((rest = after(s, "unix:"))) {
        a.kind = ADDRESS_UNIX;
        *why_r = parse_path(rest, &a);
    } else if ((rest = after(s, "tls:"))) {
        a.kind = ADDRESS_TLS;
        *why_r = parse_host_port(rest, &a);
    } else {
        rest = after(s, "tcp:");
        *why_r = parse_host_port(rest ? rest : s, &a);
    }
    if (*why_r)
        return -1;
    *a_r = a;
    return 0;
}

void address_format(const struct address *a, char *out, unsigned size)
{
    const char *scheme = a->kind == ADDRESS_TLS ? "tls" : "tcp";

    if (a->kind == ADDRESS_UNIX)
        snprintf(out, size, "unix:%s", a->path);
    else if (strchr(a->host, ':'))
        snprintf(out, size, "%s:[%s]:%d", scheme, a->host, a->port);
    else
        snprintf(out, size, "%s:%s:%d", scheme, a->host, a->port);
}

/* Numeric forms only: "127.example.com" is a name. */
static bool is_loopback(const char *host)
{
    struct in_addr in4;
    struct in6_addr in6;

    if (inet_pton(AF_INET, host, &in4) == 1)
        return ntohl(in4.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, host, &in6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&in6);
    return false;
}

bool address_is_local(const struct address *a)
{
    return a->kind == ADDRESS_UNIX || strcasecmp(a->host, "localhost") == 0 ||
           is_loopback(a->host);
}
