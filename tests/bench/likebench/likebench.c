/* SPDX-License-Identifier: MIT */
/* The load generator of bench.sh: see --help. Prints one line of JSON. */
#include <inttypes.h>
#include <stdio.h>

#include "load.h"
#include "options.h"

static void put_text(const char *text)
{
    putchar('"');
    for (const char *p = text; *p; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < 0x20)
            printf("\\u%04x", (unsigned)*p);
        else
            putchar(*p);
    putchar('"');
}

static void put_times(const struct hist *h)
{
    static const struct {
        const char *name;
        double share;
    } shares[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};

    printf("\"latency_us\": {");
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        printf("\"%s\": %" PRIu64 ", ", shares[i].name,
               hist_quantile(h, shares[i].share));
    printf("\"max\": %" PRIu64 ", \"mean\": %.1f}", h->max,
           h->n ? (double)h->sum / (double)h->n : 0.0);
}

int main(int argc, char **argv)
{
    static struct result r;
    struct options o;

    options_read(&o, argc, argv);
    load_run(&o, &r);
    printf("{\"events\": %" PRIu64 ", \"seconds\": %.6f, "
           "\"cpu_seconds\": %.3f, \"zeros\": %" PRIu64 ", \"ones\": %" PRIu64
           ", \"errors\": %" PRIu64 ", \"first_error\": ",
           r.events, r.seconds, r.cpu_seconds, r.kinds[REPLY_ZERO],
           r.kinds[REPLY_ONE], r.kinds[REPLY_ERROR]);
    put_text(r.error);
    printf(", ");
    put_times(&r.took);
    printf("}\n");
    return 0;
}
