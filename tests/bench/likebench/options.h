/* SPDX-License-Identifier: MIT */
/* The command line of likebench. */
#ifndef LIKEBENCH_OPTIONS_H
#define LIKEBENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define ID_BASE 1000000000ULL /* all ids have ten digits */

struct workload;

struct options {
    const char *socket;
    const struct workload *workload;
    const char *verb;
    const char *sha; /* of a script that does an event */
    uint64_t connections;
    uint64_t pipeline;
    uint64_t events;
    uint64_t first;
    uint64_t others; /* 0: each event its own */
    uint64_t churn;  /* events of a pair, on and off by turns; 0: one */
    uint64_t known;  /* pairs that reads are about */
    double zipf;     /* exponent; 0: all others alike */
    double seconds;  /* 0: no end but that of the events */
    double rate;     /* events a second; 0: as many as are answered */
};

/* Of the command line; what is wrong ends the process with status 2 and a text
 * on stderr that names it. */
void options_read(struct options *o, int argc, char **argv);

#endif
