/* SPDX-License-Identifier: MIT */
/* The greeting as a list of steps: AUTH (with a password), SELECT (of a db that
 * is not 0), INFO, and SCRIPT LOAD of each script. */
#include "adapters/redis_greeting.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum step { STEP_AUTH, STEP_SELECT, STEP_INFO, STEP_SCRIPTS };

static const char *const step_names[] = {"AUTH", "SELECT", "INFO",
                                         "SCRIPT LOAD"};

static size_t n_steps(const struct redis_greeting *g)
{
    return STEP_SCRIPTS + g->config->n_scripts;
}

/* The first step from `step` on that this configuration has. */
static size_t skip(const struct redis_greeting *g, size_t step)
{
    if (step == STEP_AUTH && !g->config->password[0])
        step++;
    if (step == STEP_SELECT && g->config->db == 0)
        step++;
    return step;
}

void redis_greeting_begin(struct redis_greeting *g,
                          const struct redis_config *config)
{
    memset(g, 0, sizeof(*g));
    g->config = config;
    g->asked = skip(g, STEP_AUTH);
    g->answered = g->asked;
    snprintf(g->db, sizeof(g->db), "%d", config->db);
}

void redis_greeting_begin_scripts(struct redis_greeting *g)
{
    assert(g->config->n_scripts > 0);
    g->asked = STEP_SCRIPTS;
    g->answered = STEP_SCRIPTS;
}

static int auth(const struct redis_config *c, const char **argv)
{
    int argc = 0;

    argv[argc++] = "AUTH";
    if (c->username[0])
        argv[argc++] = c->username;
    argv[argc++] = c->password;
    return argc;
}

int redis_greeting_next(struct redis_greeting *g,
                        const char *argv[REDIS_GREETING_ARGS])
{
    size_t step = g->asked;

    if (step == n_steps(g))
        return 0;
    g->asked = skip(g, step + 1);
    switch (step) {
    case STEP_AUTH:
        return auth(g->config, argv);
    case STEP_SELECT:
        argv[0] = "SELECT";
        argv[1] = g->db;
        return 2;
    case STEP_INFO:
        argv[0] = "INFO";
        return 1;
    default:
        argv[0] = "SCRIPT";
        argv[1] = "LOAD";
        argv[2] = g->config->scripts[step - STEP_SCRIPTS].source;
        return 3;
    }
}

static int take_sha(struct redis_script *s, const char *sha, size_t len)
{
    if (len != sizeof(s->sha) - 1)
        return -1;
    memcpy(s->sha, sha, len);
    s->sha[len] = '\0';
    return 0;
}

/* 0, or -1 when it cannot be the answer to this step. */
static int take_value(struct redis_greeting *g, size_t step, const char *text,
                      size_t len)
{
    switch (step) {
    case STEP_AUTH:
    case STEP_SELECT:
        return len == 2 && memcmp(text, "OK", 2) == 0 ? 0 : -1;
    case STEP_INFO:
        return redis_parse_info(text, len, &g->info);
    default:
        return take_sha(&g->config->scripts[step - STEP_SCRIPTS], text, len);
    }
}

/* A word from the table says whether waiting may help; any other error to one
 * of these commands is a matter of settings. */
static enum redis_greeting_result judge_error(const char *text, size_t len)
{
    const struct redis_error *e = redis_error_find(text, len);

    if (e->outcome == REDIS_ERROR || e->remedy == REDIS_REMEDY_RECONNECT_SLOW)
        return REDIS_GREETING_REFUSED;
    return REDIS_GREETING_FAILED;
}

enum redis_greeting_result redis_greeting_take(struct redis_greeting *g,
                                               const struct redis_value *v,
                                               char *why, size_t size)
{
    size_t step = g->answered;
    const char *name =
        step_names[step < STEP_SCRIPTS ? step : (size_t)STEP_SCRIPTS];
    size_t len;
    const char *text = redis_value_str(v, &len);

    assert(step < g->asked);
    g->answered = skip(g, step + 1);
    if (redis_value_type(v) == REDIS_T_ERROR) {
        snprintf(why, size, "%s: %.*s", name, (int)len, text);
        return judge_error(text, len);
    }
    if (take_value(g, step, text, len) < 0) {
        snprintf(why, size, "%s: unexpected reply", name);
        return REDIS_GREETING_REFUSED;
    }
    if (step == STEP_INFO && g->info.loading) {
        snprintf(why, size, "it is still loading its data");
        return REDIS_GREETING_FAILED;
    }
    return g->answered == n_steps(g) ? REDIS_GREETING_DONE
                                     : REDIS_GREETING_GOES_ON;
}
