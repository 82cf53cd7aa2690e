/* SPDX-License-Identifier: MIT */
/* likesyncctl: the command line. What it does stands in the table of verbs
 * (ctl_table.c), a file for each or a few. */
#include "ctl.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "core/secret.h"

#define MAX_OPTIONS   16
#define MAX_MS        3600000
#define MAX_COUNT     1000000
#define NO_SHORT_NAME 256 /* + index in ctl_options */

/* What is wrong has been said; all of the help would hide it. */
static int wrong_usage(void)
{
    fputs("likesyncctl --help says more\n", stderr);
    return EXIT_USAGE;
}

/* ---- options ---- */

static void make_getopt(char *shorts, struct option *longs)
{
    for (size_t i = 0; i < ctl_option_count; i++) {
        const struct ctl_option *o = &ctl_options[i];

        longs[i] = (struct option){
            o->name, o->arg ? required_argument : no_argument, NULL,
            o->letter ? o->letter : NO_SHORT_NAME + (int)i};
        if (!o->letter)
            continue;
        *shorts++ = (char)o->letter;
        if (o->arg)
            *shorts++ = ':';
    }
    *shorts = '\0';
}

/* NULL: getopt has said that there is none. */
static const struct ctl_option *option_of(int c)
{
    for (size_t i = 0; i < ctl_option_count; i++)
        if (c == ctl_options[i].letter || c == NO_SHORT_NAME + (int)i)
            return &ctl_options[i];
    return NULL;
}

static int read_number(const struct ctl_option *o, const char *text,
                       int64_t min, int64_t max, int64_t *v_r)
{
    if (num_parse_i64(text, strlen(text), v_r) == 0 && *v_r >= min &&
        *v_r <= max)
        return 0;
    fprintf(stderr, "likesyncctl: --%s %s: expected %s from %lld to %lld\n",
            o->name, text,
            strcmp(o->arg, "MS") == 0 ? "milliseconds" : "a number",
            (long long)min, (long long)max);
    return -1;
}

static int take_option(struct ctl *ctl, const struct ctl_option *o)
{
    ctl->given |= o->flag;
    switch (o->flag) {
    case CTL_OPT_SOCKET:
        ctl->where = optarg;
        return 0;
    case CTL_OPT_PASSWORD:
        ctl->password_file = optarg;
        return 0;
    case CTL_OPT_TIMEOUT:
        return read_number(o, optarg, 1, MAX_MS, &ctl->timeout_ms);
    case CTL_OPT_INTERVAL:
        return read_number(o, optarg, 100, MAX_MS, &ctl->interval_ms);
    case CTL_OPT_COUNT:
        return read_number(o, optarg, 1, MAX_COUNT, &ctl->count);
    default:
        return 0;
    }
}

/* 0, or the exit status. */
static int parse(struct ctl *ctl, int argc, char **argv)
{
    char shorts[2 * MAX_OPTIONS + 1];
    struct option longs[MAX_OPTIONS] = {{0}};
    int c;

    make_getopt(shorts, longs);
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct ctl_option *o = option_of(c);

        if (!o)
            return wrong_usage();
        if (take_option(ctl, o) != 0)
            return EXIT_USAGE;
    }
    return 0;
}

/* ---- verbs ---- */

/* Of those that begin with that word: "list, retry or drop"; "" where there are
 * none. */
static void list_second_words(const char *first, struct buf *out)
{
    size_t len = strlen(first);

    for (size_t i = 0; i < ctl_verb_count; i++) {
        const char *name = ctl_verbs[i].name;

        if (strncmp(name, first, len) == 0 && name[len] == ' ')
            buf_printf(out, "%s%s", out->len ? " or " : "", name + len + 1);
    }
}

static const struct ctl_verb *find_verb(int n, char *const *words,
                                        int *n_words_r)
{
    for (size_t i = 0; i < ctl_verb_count; i++) {
        *n_words_r = ctl_verb_words(&ctl_verbs[i], n, words);
        if (*n_words_r > 0)
            return &ctl_verbs[i];
    }
    return NULL;
}

static int unknown_verb(int n, char *const *words)
{
    struct buf seconds = {0};

    if (n > 0)
        list_second_words(words[0], &seconds);
    if (n == 0)
        fprintf(stderr, "likesyncctl: expected one verb\n");
    else if (seconds.len)
        fprintf(stderr, "likesyncctl: %s: expected %s\n", words[0],
                buf_cstr(&seconds));
    else
        fprintf(stderr, "likesyncctl: unknown verb '%s'\n", words[0]);
    buf_free(&seconds);
    return wrong_usage();
}

/* Of the verb, of all that begin with that word, or of all there is. */
static int help(int n, char *const *words)
{
    int n_words;
    const struct ctl_verb *verb = find_verb(n, words, &n_words);
    size_t len = n > 0 ? strlen(words[0]) : 0;
    bool found = false;

    if (verb) {
        ctl_print_verb_help(verb);
        return EXIT_DONE;
    }
    for (size_t i = 0; n > 0 && i < ctl_verb_count; i++) {
        if (strncmp(ctl_verbs[i].name, words[0], len) != 0 ||
            ctl_verbs[i].name[len] != ' ')
            continue;
        printf("%s", found ? "\n" : "");
        ctl_print_verb_help(&ctl_verbs[i]);
        found = true;
    }
    if (n > 0 && !found)
        return unknown_verb(n, words);
    if (n == 0)
        ctl_print_help();
    return EXIT_DONE;
}

/* Whether the verb has its argument, if any, and no other. */
static bool args_fit(const struct ctl_verb *verb, int n)
{
    bool optional = verb->arg[0] == '[';

    if (n <= (verb->arg[0] != '\0') && (n == 1 || optional || !verb->arg[0]))
        return true;
    if (verb->arg[0])
        fprintf(stderr, "likesyncctl: %s: expected %s\n", verb->name,
                verb->arg);
    else
        fprintf(stderr, "likesyncctl: expected one verb\n");
    return false;
}

static bool options_fit(const struct ctl_verb *verb, unsigned given)
{
    unsigned other = given & ~(verb->options | CTL_OPT_ALL);

    for (size_t i = 0; i < ctl_option_count; i++) {
        if (!(ctl_options[i].flag & other))
            continue;
        fprintf(stderr, "likesyncctl: --%s is not for %s\n",
                ctl_options[i].name, verb->name);
        return false;
    }
    return true;
}

static int read_password(struct ctl *ctl)
{
    int rc;

    if (!ctl->password_file)
        return 0;
    rc = secret_read(ctl->password_file, &ctl->password, &ctl->why);
    if (rc == SECRET_EXPOSED) {
        fprintf(stderr, "likesyncctl: %s\n", buf_cstr(&ctl->why));
        buf_clear(&ctl->why, 0);
    }
    return rc;
}

static int run(struct ctl *ctl, int n, char *const *words)
{
    int n_words, rc;
    const struct ctl_verb *verb = find_verb(n, words, &n_words);

    if (!verb)
        return unknown_verb(n, words);
    if (!args_fit(verb, n - n_words) || !options_fit(verb, ctl->given))
        return wrong_usage();
    ctl->arg = words[n_words]; /* or the NULL at the end */
    ctl->compares = verb->run == verb_verify;
    if (read_password(ctl) < 0 ||
        ctl_connect(&ctl->conn, ctl->where, ctl->password, &ctl->why) != 0)
        return ctl_fail(ctl);
    rc = verb->run(ctl);
    ctl_close(&ctl->conn);
    return rc;
}

int main(int argc, char **argv)
{
    struct ctl ctl = {
        .where = CTL_SOCKET, .timeout_ms = 30000, .interval_ms = 1000};
    int rc = parse(&ctl, argc, argv);

    if (rc == 0 && ctl.given & CTL_OPT_VERSION)
        printf("likesyncctl %s\n", LIKESYNCD_VERSION);
    else if (rc == 0 && ctl.given & CTL_OPT_HELP)
        rc = help(argc - optind, argv + optind);
    else if (rc == 0)
        rc = run(&ctl, argc - optind, argv + optind);
    secret_free(ctl.password);
    buf_free(&ctl.why);
    return rc;
}
