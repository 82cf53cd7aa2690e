/* SPDX-License-Identifier: MIT */
/* The verbs and the options of likesyncctl, one row each. The rows also make the help
 * and the tables of the manual; etc/bash-completion/likesyncctl repeats them, which a
 * test compares. */
#include <stdio.h>
#include <string.h>

#include "ctl.h"

const char ctl_status[] =
    "0 done, 1 failed, with the reason on standard error, 2 wrong usage.";

const struct ctl_option ctl_options[] = {
    {CTL_OPT_SOCKET, 's', "socket", "ADDRESS",
     "Admin listener: a path, unix:PATH or tcp:HOST:PORT (" CTL_SOCKET ")."},
    {CTL_OPT_PASSWORD, 0, "password-file", "FILE",
     "Password for a tcp: address; or credential:NAME."},
    {CTL_OPT_TIMEOUT, 't', "timeout", "MS",
     "How long to wait, 1 to 3600000 ms (30000)."},
    {CTL_OPT_COUNT, 'n', "count", "N",
     "How many: lines of top, or dead letters of a list, 1 to 1000 (20)."},
    {CTL_OPT_INTERVAL, 'i', "interval", "MS",
     "Time between two looks, 100 to 3600000 ms (1000)."},
    {CTL_OPT_JSON, 0, "json", NULL, "Print JSON."},
    {CTL_OPT_REPAIR, 0, "repair", NULL, "Mend what differs."},
    {CTL_OPT_YES, 0, "yes", NULL, "Do not ask."},
    {CTL_OPT_VERSION, 0, "version", NULL, "Print the version."},
    {CTL_OPT_HELP, 0, "help", NULL,
     "Print the help, or, with a verb, that of the verb."},
};

const size_t ctl_option_count = ARRAY_LEN(ctl_options);

const struct ctl_verb ctl_verbs[] = {
    {"status", "", CTL_OPT_JSON, verb_status, "How things stand.",
     "Backends, backlog, lag, and through what time everything is in "
     "PostgreSQL.",
     NULL},
    {"top", "", CTL_OPT_COUNT | CTL_OPT_INTERVAL, verb_top,
     "The same, live, with rates.",
     "On a terminal over the whole screen, until q or Ctrl-C. With -n, or "
     "where there is no terminal, a line each time.",
     NULL},
    {"drain", "", CTL_OPT_TIMEOUT, verb_drain,
     "Wait until all that was acked is in PostgreSQL.",
     "A terminal shows how far it is. When the time is over, it failed, but "
     "the daemon goes on.",
     NULL},
    {"pause", "", 0, verb_pause, "Stop flushing (events are still taken).",
     "For work on PostgreSQL. Of this daemon only.", NULL},
    {"resume", "", 0, verb_resume, "Flush again.", "", NULL},
    {"verify", "", CTL_OPT_REPAIR | CTL_OPT_JSON, verb_verify,
     "Compare Redis with PostgreSQL, and counts with rows.",
     "With --repair, mend what differs. Events are taken meanwhile. Ctrl-C "
     "stops it.",
     "0 nothing differs, 1 something did, also if it was mended, 2 that could "
     "not be told."},
    {"adopt", "follows|likes", 0, verb_adopt,
     "Take over what an app wrote into Redis itself.",
     "Counters of posts that hold totals must be deleted first. Ctrl-C stops "
     "it; run again, it goes on.",
     NULL},
    {"deadletter list", "[ID]", CTL_OPT_COUNT | CTL_OPT_JSON,
     verb_deadletter_list, "Rows that PostgreSQL refused, and why.",
     "The newest first, or those from an ID on to older ones.", NULL},
    {"deadletter retry", "ID", 0, verb_deadletter_retry,
     "Apply one whose cause is mended.",
     "By the function retry_dead_letter of sql/views.sql. Look at it first: "
     "an old one may not be wanted any more. Redis may hold what was before "
     "for as long as cache.ttl; verify --repair mends that at once.",
     NULL},
    {"deadletter drop", "ID", CTL_OPT_YES, verb_deadletter_drop,
     "Delete one that is not wanted.",
     "Its event is lost then, so it asks first; without a terminal it takes "
     "--yes.",
     NULL},
    {"config", "", CTL_OPT_JSON, verb_config,
     "The configuration that the daemon runs with.",
     "In the form of its file; values that may hold a secret are hidden. "
     "Marks what takes a restart, and where the file has another value by "
     "now.",
     NULL},
    {"ping", "", 0, verb_ping, "Is the daemon alive.", "", NULL},
};

const size_t ctl_verb_count = ARRAY_LEN(ctl_verbs);

int ctl_verb_words(const struct ctl_verb *verb, int n, char *const *words)
{
    const char *name = verb->name;

    for (int i = 0; i < n; i++) {
        size_t len = strlen(words[i]);

        if (len == 0 || strncmp(name, words[i], len) != 0)
            return 0;
        if (name[len] == '\0')
            return i + 1;
        if (name[len] != ' ')
            return 0;
        name += len + 1;
    }
    return 0;
}

/* ---- help ---- */

#define HELP_AT 28 /* columns before the help of a row */
#define WIDTH   80

/* From that column on, broken between words. */
static void print_text(const char *text, int indent)
{
    int column = indent;

    while (*text) {
        int len = (int)strcspn(text, " ");

        if (column > indent && column + 1 + len >= WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        column += printf("%s%.*s", column > indent ? " " : "", len, text);
        text += len;
        text += *text == ' ';
    }
    printf("\n");
}

static void print_option(const struct ctl_option *o)
{
    int n = printf("  ");

    if (o->letter)
        n += printf("-%c, ", o->letter);
    else
        n += printf("    ");
    n += printf("--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
    printf("%*s", HELP_AT - n > 0 ? HELP_AT - n : 1, "");
    print_text(o->help, HELP_AT);
}

static void print_options(unsigned which)
{
    printf("\nOptions:\n");
    for (size_t i = 0; i < ctl_option_count; i++)
        if (ctl_options[i].flag & which)
            print_option(&ctl_options[i]);
}

static void print_status(const char *status)
{
    printf("\n");
    print_text("Exit status:", 0);
    printf("  ");
    print_text(status, 2);
}

void ctl_print_help(void)
{
    printf("usage: likesyncctl [OPTION]... VERB\n\n");
    for (size_t i = 0; i < ctl_verb_count; i++) {
        const struct ctl_verb *verb = &ctl_verbs[i];
        int n =
            printf("  %s%s%s", verb->name, verb->arg[0] ? " " : "", verb->arg);

        printf("%*s", HELP_AT - n > 0 ? HELP_AT - n : 1, "");
        print_text(verb->summary, HELP_AT);
    }
    print_options(~0u);
    print_status(ctl_status);
    print_text("More about a verb: likesyncctl VERB --help", 0);
}

void ctl_print_verb_help(const struct ctl_verb *verb)
{
    printf("usage: likesyncctl [OPTION]... %s%s%s\n\n", verb->name,
           verb->arg[0] ? " " : "", verb->arg);
    print_text(verb->summary, 0);
    if (verb->help[0])
        print_text(verb->help, 0);
    print_options(verb->options | CTL_OPT_ALL);
    print_status(verb->status ? verb->status : ctl_status);
}
