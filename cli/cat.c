/* `ringest cat`: the bytes of an object on standard output, read in ranges so that any size fits.
 */
#include "cli/cat.h"

#include "cli/cli.h"
#include "cli/expand.h"
#include "cli/hash_text.h"
#include "cli/lookup.h"
#include "cli/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes per request, and requests in flight. */
#define PART_SIZE RG_MIB(8)
#define PARTS_INFLIGHT 8

struct cat {
    struct cli_session *session; /* borrowed */
    struct cli_uri uri;
    uint64_t first, last; /* inclusive; last UINT64_MAX: to the end */
    bool knows;           /* what follows, up to has_object_crc32c; the first answer tells */
    int64_t generation;   /* 0: the server has none, and what is read may change meanwhile */
    uint64_t end;         /* of the object or the range, once known */
    uint64_t next_offset, written_offset;
    uint32_t crc32c; /* of what has been written */
    uint64_t object_size;
    uint32_t object_crc32c;
    bool has_object_crc32c;
    uint32_t inflight;
    struct rg_completion parts[PARTS_INFLIGHT]; /* by offset, when they come out of order */
    bool have[PARTS_INFLIGHT];
};

static bool range_parse(const char *text, uint64_t *out_first, uint64_t *out_last)
{
    char *end;
    errno = 0;
    uint64_t first = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '-' || errno != 0) {
        goto bad;
    }
    const char *second = end + 1;
    uint64_t last = UINT64_MAX;
    if (*second != '\0') {
        last = strtoull(second, &end, 10);
        if (*second < '0' || *second > '9' || *end != '\0' || errno != 0 || last < first) {
            goto bad;
        }
    }
    *out_first = first;
    *out_last = last;
    return true;
bad:
    cli_usage("--range must be A-B or A- with A <= B, both included, got \"%s\"", text);
    return false;
}

static int write_all(const uint8_t *data, uint64_t size)
{
    while (size > 0) {
        ssize_t written = write(STDOUT_FILENO, data, (size_t)RG_MIN(size, (uint64_t)RG_MIB(16)));
        if (written < 0 && errno != EINTR) {
            return cli_output_fail(errno);
        }
        if (written > 0) {
            data += written;
            size -= (uint64_t)written;
        }
    }
    return CLI_DONE;
}

static int part_submit(struct cat *cat)
{
    uint64_t left = cat->end == UINT64_MAX ? PART_SIZE : cat->end - cat->next_offset;
    struct rg_get get = {
        .bucket = cat->uri.bucket,
        .object = cat->uri.name,
        .generation = cat->generation,
        .offset = cat->next_offset,
        .length = RG_MIN(left, (uint64_t)PART_SIZE),
        .user_data = cat->next_offset,
    };
    int rc = rg_submit_get(cat->session->client, cat->session->cq, &get);
    if (rc < 0) {
        return cli_fail("gs://%s/%s: %s", cat->uri.bucket, cat->uri.name, cli_submit_text(rc));
    }
    cat->next_offset += get.length;
    cat->inflight++;
    return CLI_DONE;
}

static size_t part_slot(const struct cat *cat, uint64_t offset)
{
    return (size_t)((offset - cat->first) / PART_SIZE % PARTS_INFLIGHT);
}

/* Writes what has come in order. */
static int parts_write(struct cat *cat)
{
    int status = CLI_DONE;
    for (;;) {
        size_t slot = part_slot(cat, cat->written_offset);
        if (!cat->have[slot] || status != CLI_DONE) {
            return status;
        }
        struct rg_completion *part = &cat->parts[slot];
        cat->have[slot] = false;
        status = write_all(part->data, part->size);
        cat->crc32c = rg_crc32c_combine(cat->crc32c, part->crc32c, part->size);
        cat->written_offset += part->size;
        rg_lease_release(part->lease);
        if (cat->written_offset >= cat->end) {
            return status;
        }
    }
}

/* The first answer tells how large the object is, and which generation the rest must be of. */
static int part_take(struct cat *cat, const struct rg_completion *part)
{
    cat->inflight--;
    bool empty_object = part->status == RG_STATUS_RANGE && part->user_data == 0 && cat->first == 0;
    if (part->status != RG_STATUS_OK && !empty_object) {
        int status = lookup_fail(cat->session, &cat->uri, part);
        rg_lease_release(part->lease);
        return status;
    }
    if (empty_object) {
        rg_lease_release(part->lease);
        cat->end = 0;
        return CLI_DONE;
    }
    if (!cat->knows) {
        cat->knows = true;
        if (part->is_gzip) {
            cli_note(
                "gs://%s/%s: is stored with Content-Encoding gzip, so the output is compressed; "
                "gunzip unpacks it",
                cat->uri.bucket, cat->uri.name);
        }
        cat->generation = part->generation;
        cat->object_size = part->object_size;
        cat->object_crc32c = part->object_crc32c;
        cat->has_object_crc32c = part->has_object_crc32c;
        cat->end = RG_MIN(part->object_size, cat->last == UINT64_MAX ? UINT64_MAX : cat->last + 1);
    }
    size_t slot = part_slot(cat, part->user_data);
    RG_ASSERT(!cat->have[slot]);
    cat->parts[slot] = *part;
    cat->have[slot] = true;
    return parts_write(cat);
}

static bool may_submit(const struct cat *cat)
{
    if (!cat->knows) {
        return cat->next_offset == cat->first;
    }
    return cat->next_offset < cat->end &&
           cat->next_offset - cat->written_offset < PARTS_INFLIGHT * PART_SIZE;
}

static int cat_object(struct cat *cat)
{
    int status = CLI_DONE;
    do {
        while (status == CLI_DONE && may_submit(cat)) {
            status = part_submit(cat);
        }
        struct rg_completion part;
        if (status == CLI_DONE && cli_wait_one(cat->session, &part)) {
            status = part_take(cat, &part);
        }
    } while (status == CLI_DONE && cat->written_offset < cat->end);
    for (size_t i = 0; i < PARTS_INFLIGHT; i++) {
        if (cat->have[i]) {
            rg_lease_release(cat->parts[i].lease);
        }
    }
    bool whole = cat->first == 0 && cat->written_offset == cat->object_size;
    if (status == CLI_DONE && whole && cat->written_offset > 0 && !cat->has_object_crc32c) {
        status = lookup_crc32c(cat->session, &cat->uri, cat->generation, cat->object_size,
                               &cat->object_crc32c);
    }
    if (status == CLI_DONE && whole && cat->written_offset > 0 &&
        cat->crc32c != cat->object_crc32c) {
        status =
            cli_fail("gs://%s/%s: the output has CRC32C %s, the object %s; do not use the output",
                     cat->uri.bucket, cat->uri.name, CRC32C_TEXT(cat->crc32c),
                     CRC32C_TEXT(cat->object_crc32c));
    }
    return status;
}

int cat_whole(struct cli_session *session, const struct cli_uri *uri, uint64_t *out_size)
{
    struct cat cat = {.session = session, .uri = *uri, .last = UINT64_MAX, .end = UINT64_MAX};
    int status = cat_object(&cat);
    *out_size = cat.written_offset;
    return status;
}

/* One that cannot be read ends it: what comes behind would stand in its place. */
static int cat_all(struct cli_session *session, const struct expanded *objects, uint64_t first,
                   uint64_t last)
{
    int status = CLI_DONE;
    for (int i = 0; i < objects->count && status == CLI_DONE; i++) {
        struct cat cat = {.session = session, .first = first, .last = last};
        RG_ASSERT(cli_parse_uri(objects->places[i], &cat.uri));
        cat.next_offset = cat.written_offset = first;
        cat.end = last != UINT64_MAX ? last + 1 : UINT64_MAX;
        status = cat_object(&cat);
    }
    return status;
}

static int cat_run(int argc, char **argv)
{
    enum { OPTION_RANGE = CLI_OPTION_FIRST, OPTION_LITERAL };
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"range", required_argument, NULL, OPTION_RANGE},
                                            {"literal", no_argument, NULL, OPTION_LITERAL},
                                            {0}};
    uint64_t first = 0, last = UINT64_MAX;
    struct cli_connection connection = {.connections = PARTS_INFLIGHT};
    int option;
    bool ok, literal = false;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == OPTION_RANGE) {
            if (!range_parse(optarg, &first, &last)) {
                return CLI_USAGE;
            }
        } else if (option == OPTION_LITERAL) {
            literal = true;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    if (cli_objects_check(&argv[optind], argc - optind) != CLI_DONE) {
        return CLI_USAGE;
    }
    struct cli_session session;
    int status = cli_session_open(&session, &connection, 2 * PARTS_INFLIGHT);
    if (status != CLI_DONE) {
        return status;
    }
    struct expanded objects;
    status = expand_places(&session, &argv[optind], argc - optind, literal, &objects);
    if (status == CLI_DONE) {
        status = cat_all(&session, &objects, first, last);
    }
    expanded_free(&objects);
    cli_session_close(&session);
    return status;
}

const struct cli_command cli_cat = {
    .name = "cat",
    .arguments = "gs://BUCKET/OBJECT... [--range A-B] [OPTIONS]",
    .summary = "write objects to standard output",
    .help =
        "Options:\n"
        "  --range A-B        only bytes A to B of each, both included; A-: from A to the end\n"
        "  --literal          * ? [ ] are characters of names, not wildcards\n" CLI_CONNECTION_HELP
        "\nSeveral objects are written one after the other; the first that fails ends it. Large\n"
        "objects are read in parallel ranges of one generation. A whole object is checked against\n"
        "its CRC32C.\n"
        "\nExamples:\n"
        "  ringest cat gs://bucket/part-1.txt gs://bucket/part-2.txt | wc -l\n"
        "  ringest cat gs://bucket/train.tar --range 0-511 | file -\n",
    .run = cat_run,
};
