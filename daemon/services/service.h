/* SPDX-License-Identifier: MIT */
/* What runs for one kind of edge. */
#ifndef SERVICES_SERVICE_H
#define SERVICES_SERVICE_H

#include "services/engine.h"

struct flusher;
struct hottest;
struct ingest;
struct lookup;
struct recall;

/* The daemon has an array of EDGE_COUNT of them, by enum edge_index. */
struct service {
    struct engine engine;
    struct recall *recall;   /* owned */
    struct hottest *hottest; /* owned */
    struct lookup *lookup;   /* owned */
    struct ingest *ingest;   /* owned */
    struct flusher *flusher; /* owned */
};

#endif
