/* See causes.h. */
#include "dataset/causes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A loop that waits less than this part of its time has nothing to gain from faster reading. */
#define WAIT_THAT_MATTERS 0.1
/* Event loops that use more of a CPU than this are what everything waits for, whatever it is at. */
#define BUSY 0.85
/* Reading further ahead does not help a step that waits so long. */
#define HANGS_S 10.0

#define OPENING                                                                                    \
    "Connections were still being opened: keep one Client for all epochs, or open them early by "  \
    "Client(prewarm=)."

static const struct {
    const char *what, *advice;
} texts[RG_CAUSE_COUNT] = {
    [RG_STAGE_CACHE] = {"looking into the cache",
                        "The disk of the cache is slow: give Client(cache=) a folder on a faster "
                        "one, or none."},
    [RG_STAGE_TOKEN] = {"waiting for an access token",
                        "Access tokens came late: look at `ringest doctor`, or give "
                        "Client(credentials=) a key of a service account."},
    [RG_STAGE_THROTTLED] = {"held back by limits or answers 429 and 503",
                            "The bucket limits the rate: read fewer, larger objects (TarDataset), "
                            "ask for a larger quota, or raise Client(reads_per_s=) if you have set "
                            "it."},
    [RG_STAGE_RETRY] =
        {"waiting to try again after failures",
         "Requests failed and were tried again: the log says why (RINGEST_LOG=info), "
         "and Client(backoff_max=) limits the pauses."},
    [RG_STAGE_QUEUE] = {"waiting for a connection, all being busy",
                        "All connections are busy while samples wait for one: raise "
                        "Client(connections=)."},
    [RG_STAGE_DNS] = {"looking up the host", OPENING},
    [RG_STAGE_CONNECT] = {"connecting", OPENING},
    [RG_STAGE_TLS] = {"TLS handshakes", OPENING},
    [RG_STAGE_FIRST_BYTE] =
        {"until answers began",
         "The service takes long to begin its answers: have more of them on the "
         "way, by a larger %s."},
    [RG_STAGE_BODY] = {"receiving bodies",
                       "The bytes come slowly: have more on the way by a larger %s; if MB/s stays "
                       "the same, the network is the limit."},
    [RG_STAGE_MEMORY] = {"waiting for memory",
                         "The client's memory is in use: raise Client(memory=), or let go of "
                         "earlier batches."},
    [RG_CAUSE_DECODE] = {"transforms, and making batches",
                         "Making samples of bytes takes the time: make transform= faster, or let "
                         "several processes do it, by DataLoader(num_workers=)."},
    [RG_CAUSE_OTHER] =
        {"not known", "Nothing was being read while the loop waited: look at what else the client "
                      "is used for, and raise Client(requests=)."},
};

const char *rg_cause_name(unsigned cause)
{
    RG_ASSERT(cause < RG_CAUSE_COUNT);
    return cause == RG_CAUSE_OTHER    ? "other"
           : cause == RG_CAUSE_DECODE ? "decode"
                                      : rg_stage_name((enum rg_stage)cause);
}

static double seconds_of(uint64_t ns)
{
    return (double)ns / (double)RG_NS_PER_S;
}

struct rg_causes rg_causes_find(const struct rg_told_step *sum, const struct rg_told_step *open,
                                double busy)
{
    struct rg_causes causes = {
        .steps = sum->count,
        .consumer = seconds_of(sum->away_ns),
        .wait = seconds_of(sum->inside_ns),
        .open = seconds_of(open->inside_ns),
        .busy = busy,
    };
    /* A sleep that one step could not explain, the next one may have: then that is below 0, and so
     * much of the causes is of sleeps before these steps. */
    double other = (double)(int64_t)sum->slept_ns[RG_STAGE_NONE] / (double)RG_NS_PER_S;
    double known = 0, left = causes.wait;
    for (unsigned i = RG_STAGE_NONE + 1; i < RG_STAGE_COUNT; i++) {
        causes.parts[i] = seconds_of(sum->slept_ns[i]);
        known += causes.parts[i];
    }
    double explained = RG_MAX(RG_MIN(known + other, causes.wait), 0.0);
    double share = known > 0 ? RG_MIN(explained / known, 1.0) : 1.0;
    for (unsigned i = RG_STAGE_NONE + 1; i < RG_STAGE_COUNT; i++) {
        causes.parts[i] *= share;
        left -= causes.parts[i];
    }
    left = RG_MAX(left, 0.0);
    causes.parts[RG_CAUSE_OTHER] = RG_MIN(RG_MAX(other, 0.0), left);
    causes.parts[RG_CAUSE_DECODE] = left - causes.parts[RG_CAUSE_OTHER];
    return causes;
}

double rg_causes_attributed(const struct rg_causes *causes)
{
    return causes->wait > 0 ? 1 - causes->parts[RG_CAUSE_OTHER] / causes->wait : 1;
}

static unsigned largest(const double parts[static RG_CAUSE_COUNT])
{
    unsigned found = RG_CAUSE_OTHER;
    for (unsigned i = 0; i < RG_CAUSE_COUNT; i++) {
        found = parts[i] > parts[found] ? i : found;
    }
    return found;
}

/* Nothing comes over the network, and for so long that it is no matter of pace. */
static bool hangs(const struct rg_causes *causes, unsigned cause)
{
    bool is_network = cause == RG_STAGE_DNS || cause == RG_STAGE_CONNECT || cause == RG_STAGE_TLS ||
                      cause == RG_STAGE_FIRST_BYTE || cause == RG_STAGE_BODY;
    return is_network && causes->open >= HANGS_S;
}

void rg_causes_advise(const struct rg_causes *causes, const char *ahead,
                      char out[static RG_CAUSES_ADVICE_MAX])
{
    double seconds = causes->consumer + causes->wait;
    unsigned cause = largest(causes->parts);
    const char *advice = texts[cause].advice, *place = strstr(advice, "%s");
    if (hangs(causes, cause)) {
        snprintf(
            out, RG_CAUSES_ADVICE_MAX,
            "One batch has not come for %.0f s, which is a fault of the service or the network: "
            "`ringest doctor` says whether they answer, and the log what fails "
            "(RINGEST_LOG=info).",
            causes->open);
    } else if (causes->wait < WAIT_THAT_MATTERS * seconds) {
        snprintf(out, RG_CAUSES_ADVICE_MAX,
                 "The loop itself takes %.0f%% of a step, and no option of ringest makes that "
                 "faster.",
                 100 * causes->consumer / seconds);
    } else if (causes->busy > BUSY && cause != RG_CAUSE_DECODE) {
        snprintf(out, RG_CAUSES_ADVICE_MAX,
                 "The threads of the client use %.0f%% of a CPU each, so that all else waits for "
                 "them: raise Client(threads=), or give the process more CPUs.",
                 100 * causes->busy);
    } else if (place != NULL) {
        snprintf(out, RG_CAUSES_ADVICE_MAX, "%.*s%s%s", (int)(place - advice), advice, ahead,
                 place + strlen("%s"));
    } else {
        snprintf(out, RG_CAUSES_ADVICE_MAX, "%s", advice);
    }
}

/* As much as there is room for. */
struct text {
    char *place;
    size_t left;
};

static void text_add(struct text *text, const char *format, ...) RG_PRINTF(2, 3);

static void text_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text->place, text->left, format, args);
    va_end(args);
    size_t added = RG_MIN((size_t)RG_MAX(size, 0), text->left - 1);
    text->place += added;
    text->left -= added;
}

struct duration {
    char text[16];
};

/* "0.0078 ms", "15.9 ms", "2.5 s", "3601 s" */
static struct duration duration_of(double seconds)
{
    struct duration made;
    bool is_short = seconds < 1;
    snprintf(made.text, sizeof(made.text), "%.*g %s", seconds < 1000 ? 3 : 6,
             is_short ? seconds * 1000 : seconds, is_short ? "ms" : "s");
    return made;
}

void rg_causes_write(const struct rg_causes *causes, char out[static RG_CAUSES_TEXT_MAX])
{
    struct text text = {out, RG_CAUSES_TEXT_MAX};
    bool goes_on = causes->open > 0;
    double parts[RG_CAUSE_COUNT], count = RG_MAX((double)causes->steps + goes_on, 1.0);
    struct duration each = duration_of((causes->consumer + causes->wait) / count);
    memcpy(parts, causes->parts, sizeof(parts));
    if (causes->steps > 0) {
        text_add(&text, "%llu step%s%s of %s each", (unsigned long long)causes->steps,
                 causes->steps == 1 ? "" : "s", goes_on ? " and one that goes on," : "", each.text);
    } else {
        text_add(&text, "a step of %s so far", each.text);
    }
    text_add(&text, ": %s in the loop, %s waiting for data",
             duration_of(causes->consumer / count).text, duration_of(causes->wait / count).text);
    for (unsigned i = largest(parts); parts[i] > 0; i = largest(parts)) {
        text_add(&text, "\n  %5.1f%%  %9s  %-10s  %s", 100 * parts[i] / causes->wait,
                 duration_of(parts[i] / count).text, rg_cause_name(i), texts[i].what);
        parts[i] = 0;
    }
}
