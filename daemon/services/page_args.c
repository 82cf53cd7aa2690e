/* SPDX-License-Identifier: MIT */
/* One table row per option. */
#include "services/page_args.h"

#include <string.h>

#include "base/num.h"

/* More than any list has; exact in a double, as Lua counts. */
#define RANK_MAX (INT64_C(1) << 50)

struct parser {
    struct page_args *p;
    const struct page_rules *rules;
    struct buf *reply;
    unsigned seen; /* bits by enum page_option */
};

enum page_option {
    OPTION_RANGE,
    OPTION_CURSOR,
    OPTION_COUNT,
    OPTION_ASC,
    OPTION_DESC,
    OPTION_WITHTIMES,
    OPTION_VIEWER,
    PAGE_OPTIONS
};

/* ---- RANGE ---- */

static int parse_rank(struct parser *ps, const char *what,
                      const struct resp_arg *arg, int64_t *rank_r)
{
    char shown[RESP_SHOW_MAX];

    if (num_parse_i64(arg->data, arg->len, rank_r) < 0) {
        resp_error(ps->reply,
                   "ERR invalid RANGE %s '%s': expected a whole number", what,
                   resp_show(arg, shown));
        return -1;
    }
    if (*rank_r > RANK_MAX)
        *rank_r = RANK_MAX;
    if (*rank_r < -RANK_MAX)
        *rank_r = -RANK_MAX;
    return 0;
}

static int parse_range(struct parser *ps, const struct resp_arg *arg)
{
    if (parse_rank(ps, "start", &arg[0], &ps->p->start) < 0)
        return -1;
    return parse_rank(ps, "stop", &arg[1], &ps->p->stop);
}

/* ---- CURSOR ---- */

/* How many digits stand at s. */
static size_t digits(const char *s, size_t len)
{
    size_t n = 0;

    while (n < len && s[n] >= '0' && s[n] <= '9')
        n++;
    return n;
}

/* Whether a score's text can be read over at `s`: [-]digits[.digits][e±digits],
 * inf or -inf, as Redis prints them. */
static bool is_score(const char *s, size_t len)
{
    size_t sign = len > 0 && s[0] == '-';
    size_t n = sign + digits(s + sign, len - sign);
    size_t more;

    if (len - sign == 3 && memcmp(s + sign, "inf", 3) == 0)
        return true;
    if (n == sign)
        return false;
    if (n < len && s[n] == '.') {
        more = digits(s + n + 1, len - n - 1);
        if (more == 0)
            return false;
        n += 1 + more;
    }
    if (len - n > 2 && s[n] == 'e' && (s[n + 1] == '+' || s[n + 1] == '-')) {
        more = digits(s + n + 2, len - n - 2);
        n += more ? 2 + more : 0;
    }
    return n == len;
}

static bool read_cursor(struct parser *ps, const struct resp_arg *arg)
{
    struct page_args *p = ps->p;
    const char *gap = memchr(arg->data, '_', arg->len);

    if (arg->len == 1 && arg->data[0] == '0')
        return true;
    if (!gap)
        return false;
    p->time_len = (size_t)(gap - arg->data);
    p->member_len = arg->len - p->time_len - 1;
    if (p->time_len > sizeof(p->time) || p->member_len > sizeof(p->member) ||
        !is_score(arg->data, p->time_len) ||
        id_check_key(ps->rules->id_type, gap + 1, p->member_len) != 0)
        return false;
    memcpy(p->time, arg->data, p->time_len);
    memcpy(p->member, gap + 1, p->member_len);
    return true;
}

static int parse_cursor(struct parser *ps, const struct resp_arg *arg)
{
    char shown[RESP_SHOW_MAX];

    ps->p->by_cursor = true;
    if (read_cursor(ps, arg))
        return 0;
    resp_error(ps->reply,
               "ERR invalid CURSOR '%s': expected 0, or the cursor of the page "
               "before",
               resp_show(arg, shown));
    return -1;
}

/* ---- the others ---- */

static int parse_count(struct parser *ps, const struct resp_arg *arg)
{
    char shown[RESP_SHOW_MAX];
    int64_t n;

    if (num_parse_i64(arg->data, arg->len, &n) == 0 && n >= 1 &&
        n <= ps->rules->count_max) {
        ps->p->count = n;
        return 0;
    }
    resp_error(ps->reply,
               "ERR invalid COUNT '%s': expected a number from 1 to %lld (%s)",
               resp_show(arg, shown), (long long)ps->rules->count_max,
               ps->rules->count_option);
    return -1;
}

static int parse_asc(struct parser *ps, const struct resp_arg *arg)
{
    (void)arg;
    ps->p->order = PAGE_OLDEST_FIRST;
    return 0;
}

static int parse_desc(struct parser *ps, const struct resp_arg *arg)
{
    (void)arg;
    ps->p->order = PAGE_NEWEST_FIRST;
    return 0;
}

static int parse_withtimes(struct parser *ps, const struct resp_arg *arg)
{
    (void)arg;
    ps->p->with_times = true;
    return 0;
}

static int parse_viewer(struct parser *ps, const struct resp_arg *arg)
{
    char shown[RESP_SHOW_MAX];
    const char *why;

    ps->p->has_viewer = true;
    if (id_parse(ps->rules->viewer_type, arg->data, arg->len, ps->p->viewer,
                 &ps->p->viewer_len, &why) == 0)
        return 0;
    resp_error(ps->reply, "ERR invalid VIEWER id '%s': %s",
               resp_show(arg, shown), why);
    return -1;
}

static const struct {
    const char *name;
    const char *expected; /* behind it */
    int (*parse)(struct parser *ps, const struct resp_arg *arg);
    int n_args;
    unsigned excludes; /* bits by enum page_option */
} option_table[PAGE_OPTIONS] = {
    [OPTION_RANGE] = {"RANGE", "start and stop", parse_range, 2,
                      1u << OPTION_CURSOR},
    [OPTION_CURSOR] = {"CURSOR", "0, or the cursor of the page before",
                       parse_cursor, 1, 1u << OPTION_RANGE},
    [OPTION_COUNT] = {"COUNT", "a number", parse_count, 1, 0},
    [OPTION_ASC] = {"ASC", "", parse_asc, 0, 1u << OPTION_DESC},
    [OPTION_DESC] = {"DESC", "", parse_desc, 0, 1u << OPTION_ASC},
    [OPTION_WITHTIMES] = {"WITHTIMES", "", parse_withtimes, 0, 0},
    [OPTION_VIEWER] = {"VIEWER", "a user", parse_viewer, 1, 0},
};

/* PAGE_OPTIONS when it is none. */
static int find_option(const struct page_rules *rules,
                       const struct resp_arg *arg)
{
    int n = rules->may_view ? PAGE_OPTIONS : OPTION_VIEWER;

    for (int i = 0; i < n; i++)
        if (resp_arg_is(arg, option_table[i].name))
            return i;
    return PAGE_OPTIONS;
}

static void put_unknown(struct parser *ps, const struct resp_arg *arg)
{
    char shown[RESP_SHOW_MAX];

    resp_error(ps->reply,
               "ERR unknown option '%s': expected RANGE, CURSOR, COUNT, ASC, "
               "DESC%s",
               resp_show(arg, shown),
               ps->rules->may_view ? ", WITHTIMES or VIEWER" : " or WITHTIMES");
}

/* Whether the option may stand here, with so many arguments behind it. */
static bool fits(struct parser *ps, int option, int n_args)
{
    const char *name = option_table[option].name;

    if (ps->seen & 1u << option) {
        resp_error(ps->reply, "ERR %s is given twice", name);
    } else if (ps->seen & option_table[option].excludes) {
        int other = 0;

        while (!(option_table[option].excludes & 1u << other))
            other++;
        resp_error(ps->reply, "ERR %s and %s are given: expected one of them",
                   option_table[other].name, name);
    } else if (n_args < option_table[option].n_args) {
        resp_error(ps->reply, "ERR %s is not complete: expected %s behind it",
                   name, option_table[option].expected);
    } else {
        return true;
    }
    return false;
}

int page_args_parse(struct page_args *p, const struct page_rules *rules,
                    int argc, const struct resp_arg *argv, struct buf *reply)
{
    struct parser ps = {p, rules, reply, 0};

    memset(p, 0, sizeof(*p));
    p->stop = -1;
    for (int i = 0; i < argc; i++) {
        int option = find_option(rules, &argv[i]);

        if (option == PAGE_OPTIONS) {
            put_unknown(&ps, &argv[i]);
            return -1;
        }
        if (!fits(&ps, option, argc - i - 1) ||
            option_table[option].parse(&ps, &argv[i] + 1) < 0)
            return -1;
        ps.seen |= 1u << option;
        i += option_table[option].n_args;
    }
    return 0;
}
