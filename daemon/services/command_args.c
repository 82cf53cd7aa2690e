/* SPDX-License-Identifier: MIT */
/* Parses a command's arguments by recursive descent. The text is the command
 * table's own, so what does not fit is our bug. */
#include "services/command_args.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "core/resp.h"

#define NODES_MAX 32

struct word {
    const char *p; /* ref: into the line */
    size_t len;
};

enum kind {
    KIND_VALUE,
    KIND_TOKEN, /* pure */
    KIND_BLOCK, /* all of its children, in order */
    KIND_ONEOF  /* one of its children */
};

struct node {
    enum kind kind;
    struct word name;  /* empty: of what it is made of */
    struct word token; /* empty: none */
    bool optional;
    bool multiple;
    struct node *child; /* the first one */
    struct node *next;
};

struct parser {
    const char *p;
    struct node nodes[NODES_MAX];
    size_t n;
};

static struct node *parse_choice(struct parser *ps);

/* ---- reading ---- */

static struct node *new_node(struct parser *ps, enum kind kind)
{
    struct node *node = &ps->nodes[ps->n++];

    assert(ps->n <= NODES_MAX);
    *node = (struct node){.kind = kind};
    return node;
}

static bool skip(struct parser *ps, const char *text)
{
    size_t len = strlen(text);

    if (strncmp(ps->p, text, len) != 0)
        return false;
    ps->p += len;
    return true;
}

static struct word read_word(struct parser *ps)
{
    struct word w = {ps->p, strcspn(ps->p, " |[]")};

    assert(w.len > 0);
    ps->p += w.len;
    return w;
}

/* The end of what stands between two |, or in brackets. */
static bool at_end(const struct parser *ps)
{
    return *ps->p == '\0' || *ps->p == '|' || *ps->p == ']';
}

/* "name", and "name [name ...]". */
static struct node *parse_value(struct parser *ps)
{
    struct node *node = new_node(ps, KIND_VALUE);
    const char *again;

    node->name = read_word(ps);
    again = ps->p;
    if (skip(ps, " [") && strncmp(ps->p, node->name.p, node->name.len) == 0) {
        ps->p += node->name.len;
        node->multiple = skip(ps, " ...]");
    }
    if (!node->multiple)
        ps->p = again;
    return node;
}

/* "TOKEN", and with the values behind it. */
static struct node *parse_token(struct parser *ps)
{
    struct node *node = new_node(ps, KIND_TOKEN);
    struct node **end = &node->child;

    node->token = read_word(ps);
    while (ps->p[0] == ' ' && islower((unsigned char)ps->p[1])) {
        ps->p++;
        *end = parse_value(ps);
        end = &(*end)->next;
    }
    if (!node->child)
        return node;
    if (node->child->next) {
        node->kind = KIND_BLOCK;
    } else { /* the value takes the token */
        node->child->token = node->token;
        node = node->child;
    }
    return node;
}

static struct node *parse_item(struct parser *ps)
{
    struct node *node;

    if (!skip(ps, "["))
        return isupper((unsigned char)*ps->p) ? parse_token(ps)
                                              : parse_value(ps);
    node = parse_choice(ps);
    assert(*ps->p == ']');
    ps->p++;
    if (node->next) { /* several together */
        struct node *block = new_node(ps, KIND_BLOCK);

        block->child = node;
        node = block;
    }
    node->optional = true;
    return node;
}

/* "a b c" */
static struct node *parse_items(struct parser *ps)
{
    struct node *first = parse_item(ps);
    struct node *last = first;

    while (!at_end(ps)) {
        ps->p++; /* a space */
        last->next = parse_item(ps);
        last = last->next;
    }
    return first;
}

/* "a b|c d": one node with a child for each; without | the items themselves. */
static struct node *parse_choice(struct parser *ps)
{
    struct node *items = parse_items(ps);
    struct node *choice;
    struct node **end;

    if (*ps->p != '|')
        return items;
    choice = new_node(ps, KIND_ONEOF);
    end = &choice->child;
    for (;;) {
        *end = items;
        if (items->next) {
            *end = new_node(ps, KIND_BLOCK);
            (*end)->child = items;
        }
        end = &(*end)->next;
        if (!skip(ps, "|"))
            return choice;
        items = parse_items(ps);
    }
}

/* ---- writing ---- */

static const char *value_type(struct word name)
{
    static const struct {
        const char *name;
        const char *type;
    } types[] = {
        {"unix-time", "unix-time"}, {"pattern", "pattern"},
        {"n", "integer"},           {"start", "integer"},
        {"stop", "integer"},        {"index", "integer"},
        {"protover", "integer"},    {"client-id", "integer"},
        {"timeout-ms", "integer"},
    };

    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strlen(types[i].name) == name.len &&
            memcmp(types[i].name, name.p, name.len) == 0)
            return types[i].type;
    return "string";
}

static const char *node_type(const struct node *node)
{
    switch (node->kind) {
    case KIND_TOKEN:
        return "pure-token";
    case KIND_BLOCK:
        return "block";
    case KIND_ONEOF:
        return "oneof";
    case KIND_VALUE:
        break;
    }
    return value_type(node->name);
}

/* Names are not shown, except those of values. */
static void append_name(struct buf *b, const struct node *node)
{
    struct word w = node->name.len ? node->name : node->token;

    if (w.len) {
        for (size_t i = 0; i < w.len; i++)
            buf_putc(b, (char)tolower((unsigned char)w.p[i]));
        return;
    }
    for (const struct node *child = node->child; child; child = child->next) {
        append_name(b, child);
        if (child->next)
            buf_putc(b, '_');
    }
}

static void put_name(struct buf *b, const char *key, const struct node *node)
{
    struct buf name = {0};

    append_name(&name, node);
    resp_bulk_str(b, key);
    resp_bulk(b, name.data, name.len);
    buf_free(&name);
}

static void put_list(struct buf *b, int proto, const struct node *first);

static void put_node(struct buf *b, int proto, const struct node *node)
{
    bool flags = node->optional || node->multiple;
    size_t n = 3 + (node->token.len > 0) + flags;

    resp_map(b, proto, n);
    put_name(b, "name", node);
    resp_bulk_str(b, "type");
    resp_bulk_str(b, node_type(node));
    if (!node->child)
        put_name(b, "display_text", node);
    if (node->token.len) {
        resp_bulk_str(b, "token");
        resp_bulk(b, node->token.p, node->token.len);
    }
    if (flags) {
        resp_bulk_str(b, "flags");
        resp_set(b, proto, node->optional + (size_t)node->multiple);
        if (node->optional)
            resp_simple(b, "optional");
        if (node->multiple)
            resp_simple(b, "multiple");
    }
    if (node->child) {
        resp_bulk_str(b, "arguments");
        put_list(b, proto, node->child);
    }
}

static void put_list(struct buf *b, int proto, const struct node *first)
{
    size_t n = 0;

    for (const struct node *node = first; node; node = node->next)
        n++;
    resp_array(b, n);
    for (const struct node *node = first; node; node = node->next)
        put_node(b, proto, node);
}

void command_args_put(struct buf *b, int proto, const char *args)
{
    struct parser ps = {.p = args};
    const struct node *first = args[0] ? parse_choice(&ps) : NULL;

    assert(*ps.p == '\0');
    put_list(b, proto, first);
}
