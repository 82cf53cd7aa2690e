/* SPDX-License-Identifier: MIT */
/* INFO is a text of lines `name:value` (CRLF), `# Section` and empty lines. */
#include "core/redis_info.h"

#include <string.h>

#include "base/num.h"

struct field {
    const char *name;
    size_t offset;
    size_t size; /* of a string; else FLAG or NUMBER */
};

#define IS_FLAG   0 /* "0" or "1" */
#define IS_NUMBER 1

#define STRING(name, member)                                                   \
    {name, offsetof(struct redis_info, member),                                \
     sizeof(((struct redis_info *)NULL)->member)}
#define FLAG(name, member) {name, offsetof(struct redis_info, member), IS_FLAG}
#define NUMBER(name, member)                                                   \
    {name, offsetof(struct redis_info, member), IS_NUMBER}

static const struct field fields[] = {
    STRING("run_id", run_id),
    STRING("master_replid", replid),
    STRING("redis_version", version),
    STRING("maxmemory_policy", maxmemory_policy),
    NUMBER("used_memory", used_memory),
    NUMBER("maxmemory", maxmemory),
    NUMBER("evicted_keys", evicted_keys),
    FLAG("aof_enabled", aof_enabled),
    FLAG("loading", loading),
};

static int take_string(char *out, size_t size, const char *value, size_t len)
{
    if (len >= size)
        return -1;
    memcpy(out, value, len);
    out[len] = '\0';
    return 0;
}

static int take_flag(bool *out, const char *value, size_t len)
{
    if (len != 1 || (value[0] != '0' && value[0] != '1'))
        return -1;
    *out = value[0] == '1';
    return 0;
}

static int take_value(const struct field *f, void *out, const char *value,
                      size_t len)
{
    switch (f->size) {
    case IS_FLAG:
        return take_flag(out, value, len);
    case IS_NUMBER:
        return num_parse_i64(value, len, out);
    default:
        return take_string(out, f->size, value, len);
    }
}

static int take_role(struct redis_info *info, bool *seen, const char *value,
                     size_t len)
{
    *seen = true;
    info->is_primary = len == 6 && memcmp(value, "master", 6) == 0;
    return 0;
}

static int take_field(struct redis_info *info, bool *role_seen,
                      const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    const char *value;
    size_t name_len;
    size_t value_len;

    if (!colon)
        return 0;
    name_len = (size_t)(colon - line);
    value = colon + 1;
    value_len = len - name_len - 1;
    if (name_len == 4 && memcmp(line, "role", 4) == 0)
        return take_role(info, role_seen, value, value_len);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const struct field *f = &fields[i];
        void *out = (char *)info + f->offset;

        if (strlen(f->name) != name_len || memcmp(f->name, line, name_len) != 0)
            continue;
        return take_value(f, out, value, value_len);
    }
    return 0;
}

static int parse(const char *text, size_t len, struct redis_info *info)
{
    const char *end = text + len;
    bool role_seen = false;

    for (const char *line = text; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;
        const char *next = newline ? newline + 1 : end;

        if (stop > line && stop[-1] == '\r')
            stop--;
        if (take_field(info, &role_seen, line, (size_t)(stop - line)) < 0)
            return -1;
        line = next;
    }
    return role_seen && info->run_id[0] && info->version[0] ? 0 : -1;
}

int redis_parse_info(const char *text, size_t len, struct redis_info *info_r)
{
    memset(info_r, 0, sizeof(*info_r));
    if (parse(text, len, info_r) == 0)
        return 0;
    memset(info_r, 0, sizeof(*info_r));
    return -1;
}

const char *redis_info_objection(const struct redis_info *info)
{
    if (!info->is_primary)
        return "Redis is a replica";
    if (strncmp(info->maxmemory_policy, "allkeys-", 8) == 0)
        return "Redis evicts unsynced keys (maxmemory-policy allkeys-*)";
    return NULL;
}
