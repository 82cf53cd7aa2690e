/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define EVENTS_MAX   1000000000ULL
#define PIPELINE_MAX 10000

enum type { TEXT, COUNT, NUMBER };

/* Every option has an argument. */
static const struct {
    const char *name;
    enum type type;
    size_t offset;
    const char *help;
} table[] = {
#define FIELD(name) offsetof(struct options, name)
    {"socket", TEXT, FIELD(socket), "of the daemon, or of Redis"},
    {"verb", TEXT, FIELD(verb), "LIKE, UNLIKE, FOLLOW, UNFOLLOW (LIKE)"},
    {"sha", TEXT, FIELD(sha), "of the script that evalsha calls"},
    {"connections", COUNT, FIELD(connections), "(16)"},
    {"pipeline", COUNT, FIELD(pipeline), "events of a batch (64)"},
    {"events", COUNT, FIELD(events), "at most (100000)"},
    {"first", COUNT, FIELD(first), "number of the first event (0)"},
    {"others", COUNT, FIELD(others),
     "posts, or users; 1: a hot one; 0: each event its own (0)"},
    {"churn", COUNT, FIELD(churn), "events of a pair, on and off by turns"},
    {"known", COUNT, FIELD(known), "the first pairs, which mix reads"},
    {"zipf", NUMBER, FIELD(zipf), "exponent: few others have most events"},
    {"seconds", NUMBER, FIELD(seconds), "then no more events are sent"},
    {"rate", NUMBER, FIELD(rate),
     "events a second, each due at its own time; else as many as are answered"},
#undef FIELD
};
#define OPTIONS (sizeof(table) / sizeof(table[0]))

static void usage(FILE *to)
{
    fputs("usage: likebench --socket PATH --workload NAME [--OPTION VALUE...]\n"
          "\nworkloads:\n",
          to);
    for (size_t i = 0; i < workload_count; i++)
        fprintf(to, "  %-12s %s\n", workloads[i].name, workloads[i].help);
    fputs("\noptions:\n", to);
    for (size_t i = 0; i < OPTIONS; i++)
        fprintf(to, "  --%-12s %s\n", table[i].name, table[i].help);
}

static _Noreturn void wrong(const char *what, const char *value)
{
    fprintf(stderr, "likebench: %s: %s (see --help)\n", what, value);
    exit(2);
}

static void set(struct options *o, size_t i, const char *text)
{
    char *field = (char *)o + table[i].offset;
    char *end;

    if (table[i].type == TEXT) {
        *(const char **)(void *)field = text;
        return;
    }
    if (table[i].type == COUNT)
        *(uint64_t *)(void *)field = strtoull(text, &end, 10);
    else
        *(double *)(void *)field = strtod(text, &end);
    if (!*text || *text == '-' || *end)
        wrong("not a number", text);
}

static void check(const struct options *o)
{
    if (!o->socket)
        wrong("expected", "--socket");
    if (!o->workload)
        wrong("expected", "--workload");
    if (!o->connections || o->connections > 100000)
        wrong("expected from 1 to 100000", "--connections");
    if (!o->pipeline || o->pipeline > PIPELINE_MAX)
        wrong("expected from 1 to 10000", "--pipeline");
    if (o->events + o->first > EVENTS_MAX)
        wrong("more than 1000000000", "--events and --first");
    if (o->churn > 1 && o->pipeline % o->churn != 0)
        wrong("expected a divisor of --pipeline, for the order", "--churn");
    if (o->churn > 1 && o->rate > 0)
        wrong("not with --rate, which has no order", "--churn");
    if (o->zipf != 0 && (o->zipf <= 1 || o->others < 2))
        wrong("expected above 1, and two --others at least", "--zipf");
    if (o->workload->needs_sha && !o->sha)
        wrong("expected", "--sha");
    if (o->workload->needs_known && !o->known)
        wrong("expected", "--known");
}

void options_read(struct options *o, int argc, char **argv)
{
    struct option names[OPTIONS + 3] = {{0}};
    int c;

    *o = (struct options){
        .verb = "LIKE", .connections = 16, .pipeline = 64, .events = 100000};
    for (size_t i = 0; i < OPTIONS; i++)
        names[i] = (struct option){table[i].name, 1, NULL, (int)i + 1};
    names[OPTIONS] = (struct option){"workload", 1, NULL, 'w'};
    names[OPTIONS + 1] = (struct option){"help", 0, NULL, 'h'};
    while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        if (c == 'h') {
            usage(stdout);
            exit(0);
        } else if (c == 'w') {
            o->workload = workload_find(optarg);
            if (!o->workload)
                wrong("no such workload", optarg);
        } else if (c == '?') {
            exit(2);
        } else {
            set(o, (size_t)c - 1, optarg);
        }
    }
    if (optind < argc)
        wrong("not an option", argv[optind]);
    check(o);
}
