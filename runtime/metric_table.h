/* Everything that is counted: the one table of names, kinds, units and meanings. struct rg_metrics
 * (runtime/metrics.h), rg_metrics_snapshot, ringest.metrics() and docs/METRICS.md are made of it.
 *
 * Kinds: a COUNTER only grows; a GAUGE is as it is now. Units: ns is nanoseconds. */
#ifndef RG_RUNTIME_METRIC_TABLE_H
#define RG_RUNTIME_METRIC_TABLE_H

/* XX(name, kind, unit, text): the sum over loops. Those that end in "now" are not written while a
 * loop runs, but when somebody looks (runtime/census.h). */
/* clang-format off */
#define RG_METRIC_VALUES(XX)                                                                       \
    XX(attempts, COUNTER, "requests", "HTTP requests sent, retries and hedges included")           \
    XX(hedges, COUNTER, "requests", "second requests, sent beside a slow first one")               \
    XX(hedge_wins, COUNTER, "requests", "hedges that were answered first")                         \
    XX(in_flight, GAUGE, "requests", "attempts that are out, or wait for a connection")            \
    XX(limited, COUNTER, "requests", "attempts that had to wait for the rate of their bucket")     \
    XX(backoffs, COUNTER, "cuts", "times the rate of a bucket was cut")                            \
    XX(concurrency_limit, GAUGE, "requests",                                                       \
       "about how many are out at the rates of slowed down loops; 0: none is slowed down")         \
    XX(refused_429, COUNTER, "answers", "answers with status 429 (too many requests)")             \
    XX(refused_503, COUNTER, "answers", "answers with status 503 (unavailable)")                   \
    XX(timeouts, COUNTER, "timeouts", "deadlines of any kind that passed")                         \
    XX(recv_bytes, COUNTER, "bytes", "bytes received from sockets, TLS included")                  \
    XX(sent_bytes, COUNTER, "bytes", "bytes sent to sockets, TLS included")                        \
    XX(connections, GAUGE, "connections", "connections that are open now")                         \
    XX(connections_opened, COUNTER, "connections",                                                 \
       "connections that were opened, TLS handshake included")                                     \
    XX(connections_closed, COUNTER, "connections", "opened connections that were closed again")    \
    XX(connections_failed, COUNTER, "connections", "connections that could not be opened")         \
    XX(connections_reused, COUNTER, "requests", "attempts on a connection that had served others") \
    XX(tls_handshakes, COUNTER, "handshakes", "TLS handshakes that were completed")                \
    XX(tls_resumed, COUNTER, "handshakes", "TLS handshakes that resumed a session")                \
    XX(cache_hits, COUNTER, "reads", "reads that the cache answered")                              \
    XX(cache_hit_bytes, COUNTER, "bytes", "bytes of bodies that the cache answered with")          \
    XX(cache_misses, COUNTER, "reads", "reads that the cache could not answer")                    \
    XX(cache_bad, COUNTER, "blocks", "blocks in the cache that were damaged")                      \
    XX(cache_writes, COUNTER, "blocks", "blocks that were handed to the cache")                    \
    XX(cache_drops, COUNTER, "blocks", "blocks that the cache did not take (full, or busy)")       \
    XX(cache_memory_hits, COUNTER, "blocks", "blocks that the cache gave from memory")             \
    XX(lease_waits, COUNTER, "waits", "times a connection waited for leased memory to come back")  \
    XX(window_room, GAUGE, "samples", "samples that loops over datasets may have ahead of them")   \
    XX(window_out, GAUGE, "samples", "of these: asked for, and not here yet")                      \
    XX(window_filled, GAUGE, "samples", "of these: here, and not taken yet")                       \
    XX(leased_bytes, GAUGE, "bytes", "memory that is leased to the program now")                   \
    XX(memory_max, GAUGE, "bytes", "memory that may be leased at once")                            \
    XX(starved_loops, GAUGE, "loops", "loops with requests that wait for leased memory now")       \
    XX(loops, GAUGE, "loops", "event loops that run now")                                          \
    XX(loop_cpu, COUNTER, "ns", "CPU time of the event loops")                                     \
    XX(wakeups, COUNTER, "wakeups", "returns of loops from waiting")                               \
    XX(cqes, COUNTER, "completions", "completions that io_uring gave")

/* XX(name, enumerator, text): the parts of a request's time, one histogram each. */
#define RG_METRIC_PHASES(XX)                                                                       \
    XX(queue, QUEUE, "from submitting a request until it has a connection")                        \
    XX(dns, DNS, "one look-up of a host name")                                                     \
    XX(connect, CONNECT, "one TCP connection without TLS")                                         \
    XX(tls, TLS, "one TCP connection with its TLS handshake")                                      \
    XX(first_byte, FIRST_BYTE, "from sending a request until the head of its answer is there")     \
    XX(body, BODY, "from the head of an answer to its last byte")                                  \
    XX(consumer_wait, CONSUMER_WAIT, "one sleep of a thread that waits for completions")

/* XX(name, enumerator, text): what a get is at, in the order of enum rg_stage. The metric of each is
 * called get_NAME_time, and is the time of all gets together. */
#define RG_METRIC_STAGES(XX)                                                                       \
    XX(cache, CACHE, "looking into the cache")                                                     \
    XX(token, TOKEN, "waiting for an access token")                                                \
    XX(throttled, THROTTLED, "held back by a rate, or after an answer with status 429 or 503")     \
    XX(retry, RETRY, "waiting for the next attempt after another failure")                         \
    XX(queue, QUEUE, "waiting for a connection while none is being opened")                        \
    XX(dns, DNS, "waiting for a connection while host names are looked up")                        \
    XX(connect, CONNECT, "waiting for a connection while some connect by TCP")                     \
    XX(tls, TLS, "waiting for a connection while some do their TLS handshake")                     \
    XX(first_byte, FIRST_BYTE, "from sending the request to the head of its answer")               \
    XX(body, BODY, "from the head of the answer to its last byte")                                 \
    XX(memory, MEMORY, "waiting for leased memory to come back")

/* XX(name, enumerator, text): parts of saving and loading checkpoints, in the order of enum
 * rg_checkpoint_part. The metric of each is called checkpoint_NAME_time. */
#define RG_METRIC_CHECKPOINTS(XX)                                                                  \
    XX(stage, STAGE, "copying tensors to where they are saved from")                               \
    XX(upload, UPLOAD, "writing objects")                                                          \
    XX(commit, COMMIT, "making what was written visible, and removing what it replaces")           \
    XX(list, LIST, "finding out what there is to load")                                            \
    XX(read, READ, "reading and checking objects")                                                 \
    XX(place, PLACE, "copying what was read into tensors")

/* XX(name, enumerator): the label "operation" of requests. */
#define RG_METRIC_OPERATIONS(XX)                                                                   \
    XX(other, OTHER)                                                                               \
    XX(get, GET)                                                                                   \
    XX(list, LIST)                                                                                 \
    XX(stat, STAT)                                                                                 \
    XX(put, PUT)                                                                                   \
    XX(copy, COPY)                                                                                 \
    XX(delete, DELETE)
/* clang-format on */

/* Those that have labels; only label values that occurred are shown. */
#define RG_METRIC_REQUESTS_TEXT "requests of the program that have ended, by operation and status"
#define RG_METRIC_STAGE_TEXT "time of all gets together: "
#define RG_METRIC_CHECKPOINT_TEXT "time of threads that save and load checkpoints: "
#define RG_METRIC_RETRIES_TEXT "attempts after the first, by what the one before failed of"
#define RG_METRIC_DURATION_TEXT "from submitting a request to its end, retries included"

#endif
