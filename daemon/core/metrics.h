/* SPDX-License-Identifier: MIT */
/* Every metric is one row of METRICS_TABLE: it makes the enum, the storage and
 * the Prometheus text. Rows of one name stand together, the first of them
 * holds the help; HELP and TYPE are written once per name. Names, labels and
 * help are written as they stand, so they hold no backslash and no newline
 * (a test checks it). Values are in the unit of the name. */
#ifndef CORE_METRICS_H
#define CORE_METRICS_H

#include <stdint.h>

#include "base/buf.h"

/*  id, kind, name, labels, help */
#define METRICS_TABLE(X)                                                       \
    X(EVENTS_LIKE_CHANGED, COUNTER, "likesyncd_events_total",                  \
      "verb=\"like\",result=\"changed\"", "Events by verb and result.")        \
    X(EVENTS_LIKE_SAME, COUNTER, "likesyncd_events_total",                     \
      "verb=\"like\",result=\"same\"", "")                                     \
    X(EVENTS_LIKE_ERROR, COUNTER, "likesyncd_events_total",                    \
      "verb=\"like\",result=\"error\"", "")                                    \
    X(EVENTS_UNLIKE_CHANGED, COUNTER, "likesyncd_events_total",                \
      "verb=\"unlike\",result=\"changed\"", "")                                \
    X(EVENTS_UNLIKE_SAME, COUNTER, "likesyncd_events_total",                   \
      "verb=\"unlike\",result=\"same\"", "")                                   \
    X(EVENTS_UNLIKE_ERROR, COUNTER, "likesyncd_events_total",                  \
      "verb=\"unlike\",result=\"error\"", "")                                  \
    X(EVENTS_FOLLOW_CHANGED, COUNTER, "likesyncd_events_total",                \
      "verb=\"follow\",result=\"changed\"", "")                                \
    X(EVENTS_FOLLOW_SAME, COUNTER, "likesyncd_events_total",                   \
      "verb=\"follow\",result=\"same\"", "")                                   \
    X(EVENTS_FOLLOW_ERROR, COUNTER, "likesyncd_events_total",                  \
      "verb=\"follow\",result=\"error\"", "")                                  \
    X(EVENTS_UNFOLLOW_CHANGED, COUNTER, "likesyncd_events_total",              \
      "verb=\"unfollow\",result=\"changed\"", "")                              \
    X(EVENTS_UNFOLLOW_SAME, COUNTER, "likesyncd_events_total",                 \
      "verb=\"unfollow\",result=\"same\"", "")                                 \
    X(EVENTS_UNFOLLOW_ERROR, COUNTER, "likesyncd_events_total",                \
      "verb=\"unfollow\",result=\"error\"", "")                                \
    X(EVENTS_ASSUMED, COUNTER, "likesyncd_events_assumed_total", "",           \
      "Events judged without knowing what PostgreSQL holds.")                  \
    X(QUEUE_EVENTS_LIKE, GAUGE, "likesyncd_queue_events", "kind=\"like\"",     \
      "Events waiting to be sent to Redis.")                                   \
    X(QUEUE_EVENTS_FOLLOW, GAUGE, "likesyncd_queue_events", "kind=\"follow\"", \
      "")                                                                      \
    X(READS_WAITING, GAUGE, "likesyncd_reads_waiting", "",                     \
      "Read requests that wait for others.")                                   \
    X(OVERLOADS, COUNTER, "likesyncd_overloads_total", "",                     \
      "Requests refused with TRYAGAIN.")                                       \
    X(REQUESTS, COUNTER, "likesyncd_requests_total", "",                       \
      "Requests of all kinds.")                                                \
    X(AUTH_FAILURES, COUNTER, "likesyncd_auth_failures_total", "",             \
      "Refused passwords.")                                                    \
    X(AUTH_REFUSALS, GAUGE, "likesyncd_auth_refusals_waiting", "",             \
      "Refused passwords that are not answered yet.")                          \
    X(CLIENTS, GAUGE, "likesyncd_clients", "", "Connected clients.")           \
    X(CLIENTS_ACCEPTED, COUNTER, "likesyncd_clients_accepted_total", "",       \
      "Clients that were let in.")                                             \
    X(CLIENTS_REFUSED, COUNTER, "likesyncd_clients_refused_total", "",         \
      "Clients turned away at max_clients.")                                   \
    X(CLIENTS_MAX, GAUGE, "likesyncd_clients_max", "",                         \
      "Most clients at a time: max_clients within RLIMIT_NOFILE.")             \
    X(CLIENTS_CLOSED_LEFT, COUNTER, "likesyncd_clients_closed_total",          \
      "reason=\"left\"", "Clients closed, by reason.")                         \
    X(CLIENTS_CLOSED_IDLE, COUNTER, "likesyncd_clients_closed_total",          \
      "reason=\"idle\"", "")                                                   \
    X(CLIENTS_CLOSED_OUTPUT, COUNTER, "likesyncd_clients_closed_total",        \
      "reason=\"output\"", "")                                                 \
    X(CLIENTS_CLOSED_MEMORY, COUNTER, "likesyncd_clients_closed_total",        \
      "reason=\"memory\"", "")                                                 \
    X(CLIENTS_CLOSED_BEFORE_AUTH, COUNTER, "likesyncd_clients_closed_total",   \
      "reason=\"before_auth\"", "")                                            \
    X(CLIENTS_CLOSED_AUTH_TIMEOUT, COUNTER, "likesyncd_clients_closed_total",  \
      "reason=\"auth_timeout\"", "")                                           \
    X(CLIENTS_CLOSED_ARGS, COUNTER, "likesyncd_clients_closed_total",          \
      "reason=\"args\"", "")                                                   \
    X(CLIENTS_CLOSED_ARG_BYTES, COUNTER, "likesyncd_clients_closed_total",     \
      "reason=\"arg_bytes\"", "")                                              \
    X(CLIENTS_CLOSED_REQUEST, COUNTER, "likesyncd_clients_closed_total",       \
      "reason=\"request\"", "")                                                \
    X(CLIENTS_CLOSED_PROTOCOL, COUNTER, "likesyncd_clients_closed_total",      \
      "reason=\"protocol\"", "")                                               \
    X(CLIENTS_CLOSED_ATTACK, COUNTER, "likesyncd_clients_closed_total",        \
      "reason=\"attack\"", "")                                                 \
    X(CLIENTS_PAUSED_PIPELINE, COUNTER, "likesyncd_clients_paused_total",      \
      "limit=\"pipeline\"",                                                    \
      "Times a client was not read for a while, by limit.")                    \
    X(CLIENTS_PAUSED_OUTPUT, COUNTER, "likesyncd_clients_paused_total",        \
      "limit=\"output\"", "")                                                  \
    X(CLIENT_MEMORY, GAUGE, "likesyncd_client_memory_bytes", "",               \
      "Memory of all clients: requests not read to their end, and replies.")   \
    X(LOOKUP_QUERIES, COUNTER, "likesyncd_lookup_queries_total", "",           \
      "Queries that asked PostgreSQL for unknown pairs.")                      \
    X(LOOKUP_PAIRS, COUNTER, "likesyncd_lookup_pairs_total", "",               \
      "Pairs asked for in these queries.")                                     \
    X(LOOKUP_FAILURES, COUNTER, "likesyncd_lookup_failures_total", "",         \
      "Such queries that failed or timed out.")                                \
    X(RECALL_HITS, COUNTER, "likesyncd_recall_hits_total", "",                 \
      "Unknown pairs of which it was remembered what PostgreSQL said.")        \
    X(RECALL_ENTRIES_LIKE, GAUGE, "likesyncd_recall_entries", "kind=\"like\"", \
      "Pairs of which that is remembered.")                                    \
    X(RECALL_ENTRIES_FOLLOW, GAUGE, "likesyncd_recall_entries",                \
      "kind=\"follow\"", "")                                                   \
    X(REDIS_UP, GAUGE, "likesyncd_redis_up", "",                               \
      "1 when Redis is connected and ready.")                                  \
    X(REDIS_RECONNECTS, COUNTER, "likesyncd_redis_reconnects_total", "",       \
      "Connections to Redis after the first.")                                 \
    X(GENERATION, GAUGE, "likesyncd_generation", "",                           \
      "Generation of the Redis state; goes up at a restart or failover.")      \
    X(REDIS_FAILOVERS, COUNTER, "likesyncd_redis_failovers_total", "",         \
      "Restarts and failovers of Redis that were seen.")                       \
    X(REDIS_MEMORY, GAUGE, "likesyncd_redis_memory_used_bytes", "",            \
      "Memory that Redis uses.")                                               \
    X(REDIS_MEMORY_MAX, GAUGE, "likesyncd_redis_memory_max_bytes", "",         \
      "maxmemory of Redis; 0 is no limit.")                                    \
    X(REDIS_MAY_EVICT, GAUGE, "likesyncd_redis_may_evict", "",                 \
      "1 when Redis' eviction policy is another than noeviction.")             \
    X(REDIS_AOF, GAUGE, "likesyncd_redis_aof", "",                             \
      "1 when Redis keeps an append-only file.")                               \
    X(PG_UP, GAUGE, "likesyncd_postgres_up", "",                               \
      "1 when PostgreSQL is connected and its schema fits.")                   \
    X(PG_FAILOVERS, COUNTER, "likesyncd_postgres_failovers_total", "",         \
      "Failovers and restores of PostgreSQL that were seen.")                  \
    X(PG_RECONNECTS, COUNTER, "likesyncd_postgres_reconnects_total", "",       \
      "Connections to PostgreSQL after the first ones.")                       \
    X(ROWS_CLAIMED, COUNTER, "likesyncd_rows_claimed_total", "",               \
      "Rows put on record to be written.")                                     \
    X(ROWS_WRITTEN, COUNTER, "likesyncd_rows_written_total", "",               \
      "Rows of batches that PostgreSQL committed.")                            \
    X(ROWS_ACKED, COUNTER, "likesyncd_rows_acked_total", "",                   \
      "Rows whose commit was told to Redis.")                                  \
    X(OWNERS_ON_RECORD_LIKE, GAUGE, "likesyncd_owners_on_record",              \
      "kind=\"like\"",                                                         \
      "Posts or users with rows between claim and ack, of all daemons.")       \
    X(OWNERS_ON_RECORD_FOLLOW, GAUGE, "likesyncd_owners_on_record",            \
      "kind=\"follow\"", "")                                                   \
    X(BATCHES_WRITTEN, COUNTER, "likesyncd_batches_written_total", "",         \
      "Batches that PostgreSQL committed.")                                    \
    X(BATCH_RETRIES, COUNTER, "likesyncd_batch_retries_total", "",             \
      "Times a batch was written again after a failure.")                      \
    X(BATCHES_TAKEN_OVER, COUNTER, "likesyncd_batches_taken_over_total", "",   \
      "Batches with an expired lease that this daemon took.")                  \
    X(BATCHES_IN_FLIGHT_LIKE, GAUGE, "likesyncd_batches_in_flight",            \
      "kind=\"like\"", "Batches between claim and ack.")                       \
    X(BATCHES_IN_FLIGHT_FOLLOW, GAUGE, "likesyncd_batches_in_flight",          \
      "kind=\"follow\"", "")                                                   \
    X(DEAD_LETTERS, COUNTER, "likesyncd_dead_letters_total", "",               \
      "Rows that PostgreSQL refuses, put into sync_dead_letter.")              \
    X(DEAD_LETTERS_LEFT, GAUGE, "likesyncd_dead_letters", "",                  \
      "Rows of sync_dead_letter, as last told; 10001 when there are more, NaN" \
      " when not known.")                                                      \
    X(ORPHANS, COUNTER, "likesyncd_orphans_total", "",                         \
      "Counter deltas without rows, added to unattributed.")                   \
    X(BACKLOG_OWNERS_LIKE, GAUGE, "likesyncd_backlog_owners", "kind=\"like\"", \
      "Posts or users with events not yet claimed, the running pass "          \
      "included.")                                                             \
    X(BACKLOG_OWNERS_FOLLOW, GAUGE, "likesyncd_backlog_owners",                \
      "kind=\"follow\"", "")                                                   \
    X(BACKLOG_ROWS_LIKE, GAUGE, "likesyncd_backlog_rows", "kind=\"like\"",     \
      "Pairs that wait to be claimed; where more than 100 owners have some, "  \
      "those known to have most are counted and 100 others stand for the "     \
      "rest.")                                                                 \
    X(BACKLOG_ROWS_FOLLOW, GAUGE, "likesyncd_backlog_rows", "kind=\"follow\"", \
      "")                                                                      \
    X(FLUSHER_PAUSED, GAUGE, "likesyncd_flusher_paused", "",                   \
      "1 between FLUSHER PAUSE and RESUME.")                                   \
    X(SYNC_LAG_LIKE, GAUGE, "likesyncd_sync_lag_seconds", "kind=\"like\"",     \
      "Age of the oldest event that may not be durable yet, counted on while " \
      "Redis is away; NaN when not known.")                                    \
    X(SYNC_LAG_FOLLOW, GAUGE, "likesyncd_sync_lag_seconds", "kind=\"follow\"", \
      "")                                                                      \
    X(DRIFT_COUNTS, COUNTER, "likesyncd_drift_found_total", "of=\"counts\"",   \
      "What verify found to differ.")                                          \
    X(DRIFT_COUNTERS, COUNTER, "likesyncd_drift_found_total",                  \
      "of=\"counters\"", "")                                                   \
    X(DRIFT_BASES, COUNTER, "likesyncd_drift_found_total", "of=\"totals\"",    \
      "")                                                                      \
    X(DRIFT_HASHES, COUNTER, "likesyncd_drift_found_total", "of=\"hashes\"",   \
      "")                                                                      \
    X(DRIFT_LISTS, COUNTER, "likesyncd_drift_found_total", "of=\"lists\"", "") \
    X(DRIFT_UNSYNCED, COUNTER, "likesyncd_drift_found_total",                  \
      "of=\"unsynced\"", "")                                                   \
    X(LISTS_LOADED, COUNTER, "likesyncd_lists_loaded_total", "",               \
      "Lists loaded to their end.")                                            \
    X(LISTS_ROWS, COUNTER, "likesyncd_lists_rows_total", "",                   \
      "Rows of PostgreSQL put into lists.")                                    \
    X(LISTS_FAILED, COUNTER, "likesyncd_lists_failed_total", "",               \
      "Loads of lists that ended early.")                                      \
    X(LISTS_LOADING, GAUGE, "likesyncd_lists_loading", "",                     \
      "Lists being loaded, or waiting for their turn.")                        \
    X(LISTS_WAITING, GAUGE, "likesyncd_lists_waiting", "",                     \
      "Requests that wait for a list.")                                        \
    X(LOOP_DELAY, GAUGE, "likesyncd_loop_delay_seconds", "",                   \
      "How late the event loop ran a timer, at most, in a second.")            \
    X(UPTIME, GAUGE, "likesyncd_uptime_seconds", "",                           \
      "Seconds since the daemon started.")

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE };

enum metric_id {
#define X(id, kind, name, labels, help) M_##id,
    METRICS_TABLE(X)
#undef X
        M_COUNT
};

/* Rows by kind of edge stand in the order of enum edge_index, those by the end
 * of a client in that of enum client_end; `first` is the row of 0. */
static inline enum metric_id metric_of(enum metric_id first, int kind)
{
    return (enum metric_id)((int)first + kind);
}

void metric_add(enum metric_id id, uint64_t n);
/* Also for a counter whose total is kept elsewhere (reconnects). */
void metric_set(enum metric_id id, double v);
double metric_get(enum metric_id id);
/* Appends all of them in the Prometheus text format 0.0.4. */
void metrics_render(struct buf *out);

#endif
