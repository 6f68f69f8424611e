/* Gets of a client with a cache: what is answered from it, what is sent, and that no byte is ever
 * another's or older than it may be. */
#include "cache/cache.h"
#include "gcs/request/client_loop.h"
#include "tests/gcs/object/get_case.h"
#include "tests/support/loop.h"

#include <ringest/objects.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK RG_CACHE_BLOCK_SIZE
#define LARGE (3 * BLOCK + 1000)
#define APART (7 * BLOCK + BLOCK / 2)

struct world {
    struct rg_test_client c;
    char folder[RG_TEST_PATH_SIZE];
};

static void folder_make(struct world *world)
{
    const char *base = getenv("TMPDIR");
    snprintf(world->folder, sizeof(world->folder), "%s/ringest-cached-XXXXXX",
             base != NULL ? base : "/tmp");
    RG_CHECK(mkdtemp(world->folder) != NULL);
}

static void folder_remove(struct world *world)
{
    DIR *folder = opendir(world->folder);
    RG_CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            RG_CHECK_EQ(unlinkat(dirfd(folder), entry->d_name, 0), 0);
        }
    }
    closedir(folder);
    RG_CHECK_EQ(rmdir(world->folder), 0);
}

static void open_as(struct world *world, const struct rg_test_client *c)
{
    folder_make(world);
    world->c = *c;
    world->c.options.cache = world->folder;
    world->c.options.cache_size = RG_MIB(64);
    rg_test_client_open(&world->c);
}

static void open_with(struct world *world, const struct rg_step *const *scripts, uint32_t count,
                      bool tls)
{
    open_as(world, &(struct rg_test_client){.scripts = scripts, .script_count = count, .tls = tls});
}

/* With that much memory. */
static void open_in(struct world *world, const struct rg_step *const *scripts, uint32_t count,
                    uint64_t memory)
{
    open_as(world, &(struct rg_test_client){
                       .scripts = scripts, .script_count = count, .memory_max = memory});
}

static void close_all(struct world *world)
{
    rg_test_client_close(&world->c);
    folder_remove(world);
}

static struct rg_completion get_of(struct world *world, const struct rg_get *get)
{
    struct rg_completion done = get_one(&world->c, get);
    rg_cache_flush(world->c.client->cache);
    return done;
}

static uint32_t requests_of(struct world *world)
{
    return rg_scripted_server_requests(world->c.server);
}

/* Fills the cache by one get. */
static void fill(struct world *world, const struct rg_get *get)
{
    struct rg_completion done = get_of(world, get);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
}

/* The get is answered as it should be, and this many requests are sent for it. */
static void check_get(struct world *world, const struct rg_get *get, uint64_t size,
                      uint32_t requests)
{
    uint32_t before = requests_of(world);
    struct rg_completion done = get_of(world, get);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, get->offset, size);
    RG_CHECK_EQ(done.crc32c, rg_crc32c(0, done.data, size));
    RG_CHECK_EQ(done.generation, GENERATION);
    RG_CHECK(done.has_object_crc32c && !done.is_gzip);
    RG_CHECK(get->buf == NULL || done.data == get->buf);
    RG_CHECK_EQ(requests_of(world) - before, requests);
    RG_CHECK_EQ(done.attempts, requests);
    rg_lease_release(done.lease);
}

static void check_whole(uint64_t size, bool tls)
{
    const struct rg_step script[] = {RG_READ, OBJECT(size), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, tls);
    const struct rg_get get = {.generation = GENERATION};
    check_get(&world, &get, size, 1);
    check_get(&world, &get, size, 0);
    uint8_t *own = malloc(size);
    check_get(&world, &(struct rg_get){.generation = GENERATION, .buf = own, .buf_size = size},
              size, 0);
    free(own);
    struct rg_stats stats = rg_test_stats(&world.c);
    RG_CHECK_EQ(stats.cache_hits, 2);
    RG_CHECK_EQ(stats.cache_hit_bytes, 2 * size);
    RG_CHECK_EQ(stats.cache_misses, 1);
    RG_CHECK_EQ(stats.cache_writes, (size + BLOCK - 1) / BLOCK);
    RG_CHECK_EQ(stats.cache_drops + stats.cache_bad, 0);
    close_all(&world);
}

static void test_a_whole_object_of_a_known_generation_is_sent_once(void)
{
    static const uint64_t sizes[] = {1, 1000, SIZE, 300000, BLOCK, BLOCK + 1, LARGE};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        check_whole(sizes[i], false);
    }
    check_whole(SIZE, true);
}

static void test_ranges_of_a_whole_object(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct {
        uint64_t offset, length, size;
    } rows[] = {
        {0, 1, 1},
        {BLOCK - 1, 2, 2},
        {5, BLOCK, BLOCK},
        {BLOCK + 70000, 100, 100},
        {2 * BLOCK + 65536, 65536, 65536},
        {BLOCK + 500000, 200000, 200000},
        {BLOCK + 100, RG_WHOLE, LARGE - BLOCK - 100},
        {LARGE - 1, 50, 1},
    };
    struct world world;
    open_with(&world, scripts, 1, false);
    fill(&world, &(struct rg_get){.generation = GENERATION});
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_get get = {
            .generation = GENERATION, .offset = rows[i].offset, .length = rows[i].length};
        check_get(&world, &get, rows[i].size, 0);
        get.buf = malloc(rows[i].size);
        get.buf_size = rows[i].size;
        check_get(&world, &get, rows[i].size, 0);
        free(get.buf);
    }
    close_all(&world);
}

/* What of a block was read by range is there for the same range, and for what lies in it. */
static void test_a_range_that_was_read_is_there(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    struct rg_get get = {.generation = GENERATION, .offset = 700000, .length = 900000};
    check_get(&world, &get, 900000, 1);
    check_get(&world, &get, 900000, 0);
    get.length = 1000;
    check_get(&world, &get, 1000, 0);
    /* The rest is sent alone. */
    get.length = 1000000;
    check_get(&world, &get, 1000000, 1);
    RG_CHECK_CONTAINS(rg_scripted_server_head(world.c.server, 1),
                      "\r\nRange: bytes=1600000-1699999\r\n");
    check_get(&world, &get, 1000000, 0);
    get = (struct rg_get){.generation = GENERATION, .offset = 0, .length = 10};
    check_get(&world, &get, 10, 1);
    check_get(&world, &get, 10, 0);
    close_all(&world);
}

/* The ranges that were sent, from the first request that is meant: "0-99 200-299". */
static void check_sent(struct world *world, uint32_t first, const char *ranges)
{
    char sent[256] = "";
    for (uint32_t i = first; i < requests_of(world); i++) {
        const char *range =
            strcasestr(rg_scripted_server_head(world->c.server, i), "\r\nRange: bytes=");
        RG_CHECK(range != NULL);
        range += strlen("\r\nRange: bytes=");
        size_t size = strcspn(range, "\r");
        RG_CHECK(strlen(sent) + size + 2 < sizeof(sent));
        strcat(sent, *sent == '\0' ? "" : " ");
        strncat(sent, range, size);
    }
    RG_CHECK_STR(sent, ranges);
}

static void test_what_lacks_of_a_range_is_sent_for(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    static const struct {
        uint64_t offset, length;
        const char *sent;
    } rows[] = {
        {700000, 900000, "700000-1599999"},
        {800000, 100000, ""},  /* in a part, by another byte */
        {1500000, 100000, ""}, /* in the next one, up to its end */
        {1590000, 20000, "1600000-1609999"},
        {690000, 20000, "690000-699999"},
        {600000, 1500000, "600000-689999 1610000-2099999"},
        {600000, 1500000, ""},
        {2500000, 10000, "2500000-2509999"},
        {2400000, 200000, "2400000-2599999"}, /* too little to send twice */
        /* Of three parts that share a granule, the one between is not found. */
        {0, 3000000, "0-699999 2100000-2999999"},
        {1, 2999999, ""},
    };
    struct world world;
    open_with(&world, scripts, 1, false);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        uint32_t before = requests_of(&world);
        uint32_t requests = rows[i].sent[0] != '\0';
        for (const char *c = rows[i].sent; *c != '\0'; c++) {
            requests += *c == ' ';
        }
        uint8_t *own = i % 2 == 0 ? malloc(rows[i].length) : NULL;
        const struct rg_get get = {.generation = GENERATION,
                                   .offset = rows[i].offset,
                                   .length = rows[i].length,
                                   .buf = own,
                                   .buf_size = own != NULL ? rows[i].length : 0};
        check_get(&world, &get, rows[i].length, requests);
        check_sent(&world, before, rows[i].sent);
        free(own);
    }
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_bad, 0);
    close_all(&world);
}

/* Blocks that are there are not sent for, whatever lies between them; the whole is compared. */
static void test_what_lacks_of_an_object_is_sent_for(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(APART), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get whole = {.generation = GENERATION};
    struct world world;
    open_with(&world, scripts, 1, false);
    fill(&world, &(struct rg_get){.generation = GENERATION, .length = BLOCK});
    fill(&world,
         &(struct rg_get){.generation = GENERATION, .offset = 3 * BLOCK, .length = 2 * BLOCK});
    fill(&world, &(struct rg_get){.generation = GENERATION, .offset = 7 * BLOCK});
    check_get(&world, &whole, APART, 2);
    check_sent(&world, 3, "1048576-3145727 5242880-7340031");
    check_get(&world, &whole, APART, 0);
    close_all(&world);
}

/* Many gaps are sent for, but not very many. */
static void test_the_last_gap_has_all_of_the_rest(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(11 * BLOCK), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    for (uint64_t block = 1; block < 11; block += 2) {
        fill(&world,
             &(struct rg_get){.generation = GENERATION, .offset = block * BLOCK, .length = BLOCK});
    }
    check_get(&world, &(struct rg_get){.generation = GENERATION, .length = 11 * BLOCK}, 11 * BLOCK,
              5);
    check_sent(&world, 9, "8388608-11534335");
    close_all(&world);
}

static void test_what_is_behind_the_object_or_too_large_is_the_servers_to_refuse(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    fill(&world, &(struct rg_get){.generation = GENERATION});
    struct rg_completion done =
        get_of(&world, &(struct rg_get){.generation = GENERATION, .offset = SIZE, .length = 1});
    RG_CHECK_STATUS(&done, RANGE);
    rg_lease_release(done.lease);
    uint8_t own[10];
    done = get_of(&world, &(struct rg_get){.generation = GENERATION, .buf = own, .buf_size = 10});
    RG_CHECK_STATUS(&done, TOO_LARGE);
    rg_lease_release(done.lease);
    close_all(&world);
}

#define OTHER (GENERATION + 1)

/* The newest is asked for with each get, and sent only where it is another one. */
static void test_the_newest_generation_is_asked_for(void)
{
    const struct rg_step script[] = {
        RG_READ,
        OBJECT(SIZE),
        RG_READ,
        RG_SEND("HTTP/1.1 304 Not Modified\r\n\r\n"),
        RG_READ,
        RG_SEND("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"),
        RG_READ,
        RG_SEND("HTTP/1.1 304 Not Modified\r\n\r\n"),
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT,
         .size = SIZE / 2,
         .text = rg_test_object_fields(SIZE / 2, OTHER)},
        RG_READ,
        RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        RG_END,
    };
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    check_get(&world, &(struct rg_get){0}, SIZE, 1);
    check_get(&world, &(struct rg_get){0}, SIZE, 1);
    const char *head = rg_scripted_server_head(world.c.server, 1);
    RG_CHECK_CONTAINS(head, "ifGenerationNotMatch=1700000000000001");
    RG_CHECK(strstr(head, "&generation=") == NULL && strcasestr(head, "\r\nRange:") == NULL);
    /* A failure in between changes nothing. */
    check_get(&world, &(struct rg_get){.offset = 10, .length = 20}, 20, 2);
    RG_CHECK_CONTAINS(rg_scripted_server_head(world.c.server, 3), "\r\nRange: bytes=10-29\r\n");
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_hits, 2);
    struct rg_completion done = get_of(&world, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, SIZE / 2);
    RG_CHECK_EQ(done.generation, OTHER);
    rg_lease_release(done.lease);
    uint8_t own[SIZE];
    done = get_of(&world, &(struct rg_get){.buf = own, .buf_size = SIZE});
    RG_CHECK_STATUS(&done, NOT_FOUND);
    RG_CHECK_EQ(done.size, 0);
    rg_lease_release(done.lease);
    close_all(&world);
}

/* As another process does that begins. */
static void client_begin(struct world *world)
{
    rg_client_close(world->c.client);
    RG_CHECK_EQ(rg_client_open(&world->c.client, world->c.runtime, &world->c.options), 0);
    rg_cache_flush(world->c.client->cache);
}

static void test_the_newest_generation_is_known_to_who_comes_later(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_READ,
                                     RG_SEND("HTTP/1.1 304 Not Modified\r\n\r\n"), RG_END};
    const struct rg_step *const scripts[] = {script, script + 2};
    struct world world;
    open_with(&world, scripts, 2, false);
    check_get(&world, &(struct rg_get){0}, SIZE, 1);
    client_begin(&world);
    check_get(&world, &(struct rg_get){0}, SIZE, 1);
    RG_CHECK_CONTAINS(rg_scripted_server_head(world.c.server, 1),
                      "ifGenerationNotMatch=1700000000000001");
    close_all(&world);
}

/* A part is there of what is asked for: the answer for the rest tells the generation. */
static void test_the_rest_of_the_newest_generation(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    check_get(&world, &(struct rg_get){.offset = BLOCK, .length = BLOCK}, BLOCK, 1);
    check_get(&world, &(struct rg_get){.offset = BLOCK, .length = BLOCK + 10}, BLOCK + 10, 1);
    check_get(&world, &(struct rg_get){.offset = 100, .length = 2 * BLOCK - 90}, 2 * BLOCK - 90, 1);
    check_sent(&world, 1, "2097152-2097161 100-1048575");
    for (uint32_t i = 1; i < 3; i++) {
        const char *head = rg_scripted_server_head(world.c.server, i);
        RG_CHECK(strstr(head, "eneration") == NULL);
    }
    check_get(&world, &(struct rg_get){0}, LARGE, 1);
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_hits, 0);
    close_all(&world);
}

/* It is replaced before the rest is sent for: nothing of the older one is handed out, and no
 * attempt has failed. */
static void check_replaced(uint64_t offset, uint64_t length, uint32_t requests)
{
    const struct rg_step other = {
        .kind = RG_STEP_SEND_OBJECT, .size = LARGE, .text = rg_test_object_fields(LARGE, OTHER)};
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_READ, other,
                                     RG_READ, other,         RG_END};
    const struct rg_step *const scripts[] = {script, script};
    struct world world;
    open_as(&world, &(struct rg_test_client){
                        .scripts = scripts, .script_count = 2, .options = {.attempts_max = 1}});
    fill(&world, &(struct rg_get){.offset = BLOCK, .length = BLOCK});
    const struct rg_get get = {.offset = offset, .length = length};
    struct rg_completion done = get_of(&world, &get);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, offset, length);
    RG_CHECK_EQ(done.generation, OTHER);
    RG_CHECK_EQ(requests_of(&world) - 1, requests);
    rg_lease_release(done.lease);
    close_all(&world);
}

static void test_an_object_is_replaced_before_the_rest_is_read(void)
{
    check_replaced(BLOCK, BLOCK + 10, 2);
    /* What lacks is the beginning, which is of the new one. */
    check_replaced(100, 2 * BLOCK, 2);
    check_replaced(100, BLOCK / 2, 1);
}

static void test_an_object_is_gone_before_the_rest_is_read(void)
{
    const struct rg_step script[] = {
        RG_READ, OBJECT(LARGE),
        RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        RG_END,
    };
    const struct rg_step *const scripts[] = {script};
    struct world world;
    uint8_t *own = malloc(2 * BLOCK);
    open_with(&world, scripts, 1, false);
    fill(&world, &(struct rg_get){.offset = BLOCK, .length = BLOCK});
    struct rg_completion done = get_of(
        &world,
        &(struct rg_get){.offset = BLOCK, .length = 2 * BLOCK, .buf = own, .buf_size = 2 * BLOCK});
    RG_CHECK_STATUS(&done, NOT_FOUND);
    RG_CHECK_EQ(done.size, 0);
    rg_lease_release(done.lease);
    free(own);
    close_all(&world);
}

/* It is replaced by a shorter one, which has nothing where the rest begins: it is read from its
 * beginning, and no attempt has failed. */
static void test_an_object_is_replaced_by_a_shorter_one(void)
{
    const struct rg_step other = {
        .kind = RG_STEP_SEND_OBJECT, .size = 1000, .text = rg_test_object_fields(1000, OTHER)};
    const struct rg_step script[] = {
        RG_READ,
        OBJECT(LARGE),
        RG_READ,
        RG_SEND("HTTP/1.1 416 Requested Range Not Satisfiable\r\n"
                "Content-Length: 0\r\n\r\n"),
        RG_READ,
        other,
        RG_END,
    };
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_as(&world, &(struct rg_test_client){
                        .scripts = scripts, .script_count = 1, .options = {.attempts_max = 1}});
    fill(&world, &(struct rg_get){.length = BLOCK});
    struct rg_completion done = get_of(&world, &(struct rg_get){0});
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 0, 1000);
    RG_CHECK_EQ(done.generation, OTHER);
    rg_lease_release(done.lease);
    close_all(&world);
}

/* The bytes of a gap break off: the rest of the gap is sent for, and then the cache goes on. */
static void test_a_gap_breaks_off(void)
{
    struct rg_step half = OBJECT(LARGE);
    half.body_max = 1001;
    const struct rg_step first[] = {RG_READ, OBJECT(LARGE), RG_READ, half, RG_CUT};
    const struct rg_step second[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {first, second};
    const struct rg_get get = {.generation = GENERATION, .offset = 5, .length = 2 * BLOCK};
    struct world world;
    open_with(&world, scripts, 2, false);
    fill(&world, &(struct rg_get){.generation = GENERATION, .offset = BLOCK, .length = BLOCK});
    uint32_t before = requests_of(&world);
    struct rg_completion done = get_of(&world, &get);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_BYTES(&done, 5, 2 * BLOCK);
    rg_lease_release(done.lease);
    check_sent(&world, before, "5-1048575 1005-1048575 2097152-2097156");
    check_get(&world, &get, 2 * BLOCK, 0);
    close_all(&world);
}

static void test_conditions_are_the_servers_to_judge(void)
{
    const struct rg_step script[] = {
        RG_READ,      OBJECT(SIZE), RG_READ,
        OBJECT(SIZE), RG_READ,      RG_SEND("HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n"),
        RG_END,
    };
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    struct rg_get get = {.generation = GENERATION};
    check_get(&world, &get, SIZE, 1);
    get.conditions.if_metageneration_match = 1;
    check_get(&world, &get, SIZE, 1);
    get.conditions = (struct rg_conditions){.if_generation_match = GENERATION};
    check_get(&world, &get, SIZE, 0);
    get.generation = 0;
    struct rg_completion done = get_of(&world, &get);
    RG_CHECK_STATUS(&done, PRECONDITION);
    rg_lease_release(done.lease);
    close_all(&world);
}

static void test_what_is_stored_with_gzip_is_not_kept(void)
{
    static char fields[512];
    snprintf(fields, sizeof(fields), "%sx-goog-stored-content-encoding: gzip\r\n",
             rg_test_object_fields(SIZE, GENERATION));
    const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = fields}, RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    for (unsigned i = 0; i < 2; i++) {
        struct rg_completion done = get_of(&world, &(struct rg_get){.generation = GENERATION});
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK(done.is_gzip);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(requests_of(&world), 2);
    close_all(&world);
}

static void check_ranges(struct world *world, uint32_t requests)
{
    uint8_t own[3000];
    const struct rg_range ranges[] = {
        {BLOCK - 1000, 3000, own}, {BLOCK + 3000, 70000, NULL}, {3 * BLOCK, 10, NULL}};
    const struct rg_get_ranges all = {.bucket = "bucket",
                                      .object = "object",
                                      .generation = GENERATION,
                                      .ranges = ranges,
                                      .count = RG_ARRAY_LEN(ranges)};
    uint32_t before = requests_of(world);
    RG_CHECK_EQ(rg_submit_get_ranges(world->c.client, world->c.cq, &all), 0);
    struct rg_completion done = rg_test_take(&world->c);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_range_result *results = done.data;
    for (size_t i = 0; i < RG_ARRAY_LEN(ranges); i++) {
        RG_CHECK_EQ(results[i].size, ranges[i].length);
        RG_CHECK_EQ(rg_script_differs(results[i].data, ranges[i].offset, ranges[i].length),
                    ranges[i].length);
        RG_CHECK_EQ(results[i].crc32c, rg_crc32c(0, results[i].data, results[i].size));
    }
    RG_CHECK_EQ(requests_of(world) - before, requests);
    rg_lease_release(done.lease);
    rg_cache_flush(world->c.client->cache);
}

/* Many ranges of one object, leased and with buffers that are filled as bytes come. */
static void test_many_ranges(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    check_ranges(&world, 2);
    check_ranges(&world, 0);
    close_all(&world);
    open_with(&world, scripts, 1, false);
    fill(&world, &(struct rg_get){.generation = GENERATION});
    check_ranges(&world, 0);
    close_all(&world);
}

/* Two ranges far apart with buffers, which one request reads and whose bytes are taken as they
 * come. */
static void get_apart(struct world *world, uint8_t own[2][1000])
{
    const struct rg_range ranges[] = {{0, 1000, own[0]}, {APART - 1000, 1000, own[1]}};
    const struct rg_get_ranges all = {.bucket = "bucket",
                                      .object = "object",
                                      .generation = GENERATION,
                                      .ranges = ranges,
                                      .count = RG_ARRAY_LEN(ranges),
                                      .gap_max = APART};
    memset(own, 0, 2000);
    RG_CHECK_EQ(rg_submit_get_ranges(world->c.client, world->c.cq, &all), 0);
}

static void check_apart(struct world *world, uint8_t own[2][1000])
{
    struct rg_completion done = rg_test_take(&world->c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(rg_script_differs(own[0], 0, 1000), 1000);
    RG_CHECK_EQ(rg_script_differs(own[1], APART - 1000, 1000), 1000);
    rg_lease_release(done.lease);
    rg_cache_flush(world->c.client->cache);
}

/* The first answer finds no memory for a copy, and breaks off. The second finds some, and brings
 * the rest alone. That memory is given back when the loop has looked for some: it has received the
 * head, and then more, a byte that no range has. */
static void test_a_body_whose_beginning_was_not_copied_is_not_kept(void)
{
    struct rg_step half = OBJECT(APART);
    half.body_max = BLOCK;
    const struct rg_step first[] = {RG_READ,    OBJECT(APART), RG_READ,    OBJECT(APART),
                                    RG_READ,    OBJECT(APART), RG_READ,    half,
                                    RG_GATE(0), RG_SEND("."),  RG_GATE(1), RG_CUT};
    const struct rg_step second[] = {RG_READ, OBJECT(APART), RG_AGAIN};
    const struct rg_step *const scripts[] = {first, second};
    static const char *const names[] = {"a", "b", "c"};
    struct rg_completion held[RG_ARRAY_LEN(names)];
    struct world world;
    uint8_t own[2][1000];
    open_in(&world, scripts, 2, RG_MIB(16));
    for (unsigned i = 0; i < RG_ARRAY_LEN(names); i++) {
        held[i] =
            get_of(&world, &(struct rg_get){.object = names[i], .offset = 5, .length = 3 * BLOCK});
        RG_CHECK_STATUS(&held[i], OK);
    }
    uint64_t received = rg_test_stats(&world.c).recv_bytes;
    get_apart(&world, own);
    RG_AWAIT(rg_test_stats(&world.c).recv_bytes >= received + BLOCK);
    received = rg_test_stats(&world.c).recv_bytes;
    rg_scripted_server_open(world.c.server, 0);
    RG_AWAIT(rg_test_stats(&world.c).recv_bytes >= received + 1);
    for (unsigned i = 0; i < RG_ARRAY_LEN(names); i++) {
        rg_lease_release(held[i].lease);
    }
    rg_scripted_server_open(world.c.server, 1);
    check_apart(&world, own);
    get_apart(&world, own);
    check_apart(&world, own);
    RG_CHECK_EQ(requests_of(&world), 3 + 2 + 1); /* the last one because nothing was kept */
    close_all(&world);
}

/* Records are being read, or have been, when their gets end. */
static void test_gets_end_while_the_cache_is_read(void)
{
    enum { GETS = 64 };
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    open_with(&world, scripts, 1, false);
    fill(&world, &(struct rg_get){.generation = GENERATION});
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < GETS; i++) {
            rg_test_get(&world.c, &(struct rg_get){.generation = GENERATION,
                                                   .user_data = 7,
                                                   .deadline_ns = round == 1 ? 1 : 0});
        }
        RG_CHECK_EQ(round == 0 ? rg_cancel(world.c.client, world.c.cq, 7) : 0, 0);
        if (round == 2) {
            rg_client_close(world.c.client);
        }
        for (unsigned i = 0; i < GETS; i++) {
            struct rg_completion done = rg_test_take(&world.c);
            RG_CHECK(done.status == RG_STATUS_OK || done.status == RG_STATUS_CANCELLED ||
                     done.status == RG_STATUS_DEADLINE || done.status == RG_STATUS_CLOSED);
            if (done.status == RG_STATUS_OK) {
                RG_CHECK_BYTES(&done, 0, SIZE);
            }
            rg_lease_release(done.lease);
        }
    }
    world.c.client = NULL;
    close_all(&world);
}

/* Puts a pipe in the place of the segments that are open for reading: its reads hang. */
static void segments_hang(const struct world *world, int pipe_end)
{
    char path[64], target[2 * RG_TEST_PATH_SIZE];
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t size = readlink(path, target, sizeof(target) - 1);
        target[RG_MAX(size, 0)] = '\0';
        bool is_segment = size > 0 && strncmp(target, world->folder, strlen(world->folder)) == 0 &&
                          strchr(target + strlen(world->folder), '.') != NULL;
        if (is_segment && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
            RG_CHECK_EQ(dup3(pipe_end, fd, O_CLOEXEC), fd);
        }
    }
}

static void test_a_disk_that_hangs_is_waited_for_once(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get get = {.generation = GENERATION};
    struct world world;
    int ends[2];
    if (rg_test_backend() != &rg_uring_backend) {
        rg_test_skip("a thread does not read a pipe at an offset");
    }
    open_with(&world, scripts, 1, false);
    fill(&world, &get);
    check_get(&world, &get, SIZE, 0);
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    segments_hang(&world, ends[0]);
    check_get(&world, &get, SIZE, 1);
    /* What was kept again could be read, but for the read that is out. */
    check_get(&world, &get, SIZE, 1);
    check_get(&world, &get, SIZE, 1);
    RG_CHECK_EQ(write(ends[1], "x", 1), 1);
    for (uint32_t before = 0; before != requests_of(&world);) {
        before = requests_of(&world);
        fill(&world, &get);
    }
    close_all(&world);
    close(ends[0]);
    close(ends[1]);
}

/* Reads that hang leave memory for the gets that are sent. */
static void test_a_disk_that_hangs_has_half_of_the_memory(void)
{
    enum { GETS = 16 };
    const struct rg_step script[] = {RG_READ, OBJECT(BLOCK), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get get = {.generation = GENERATION};
    struct world world;
    int ends[2];
    if (rg_test_backend() != &rg_uring_backend) {
        rg_test_skip("a thread does not read a pipe at an offset");
    }
    open_in(&world, scripts, 1, RG_MIB(16));
    fill(&world, &get);
    check_get(&world, &get, BLOCK, 0);
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    segments_hang(&world, ends[0]);
    for (unsigned i = 0; i < GETS; i++) {
        rg_test_get(&world.c, &get);
    }
    for (unsigned i = 0; i < GETS; i++) {
        struct rg_completion done = rg_test_take(&world.c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_BYTES(&done, 0, BLOCK);
        rg_lease_release(done.lease);
    }
    close(ends[1]);
    close_all(&world);
    close(ends[0]);
}

/* Keeps wrong bytes, which pass their own check, as an object's first block, and fills the cache so
 * that right ones cannot take their place. */
static void poison(struct world *world)
{
    struct rg_cache *cache = world->c.client->cache;
    struct rg_cache_key key = {.origin = world->c.client->endpoint.authority,
                               .bucket = "bucket",
                               .object = "object",
                               .generation = GENERATION};
    struct rg_cache_stats stats = {0};
    uint8_t *bytes = malloc(LARGE);
    rg_script_fill(bytes, 0, LARGE);
    struct rg_cache_record record = {.object_size = LARGE,
                                     .object_crc32c = rg_crc32c(0, bytes, LARGE),
                                     .has_object_crc32c = true};
    bytes[1000] ^= 1;
    RG_CHECK(rg_cache_write(cache, &key, &record, bytes, BLOCK));
    for (key.object = "other"; stats.not_admitted == 0; key.block++) {
        (void)rg_cache_write(cache, &key, &record, bytes, BLOCK);
        rg_cache_flush(cache);
        rg_cache_stats(cache, &stats);
    }
    free(bytes);
}

static void test_what_is_not_the_object_is_forgotten(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get get = {.generation = GENERATION};
    struct world world;
    open_with(&world, scripts, 1, false);
    poison(&world);
    check_get(&world, &get, LARGE, 2);
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_bad, 1);
    check_get(&world, &get, LARGE, 1);
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_bad, 1);
    close_all(&world);
}

/* Room for the next one. */
static void test_an_older_generation_is_forgotten(void)
{
    const struct rg_step script[] = {RG_READ,
                                     OBJECT(SIZE),
                                     RG_READ,
                                     {.kind = RG_STEP_SEND_OBJECT,
                                      .size = SIZE / 2,
                                      .text = rg_test_object_fields(SIZE / 2, OTHER)},
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    struct rg_cache_place place;
    open_with(&world, scripts, 1, false);
    struct rg_cache_key key = {.origin = world.c.client->endpoint.authority,
                               .bucket = "bucket",
                               .object = "object",
                               .generation = GENERATION};
    fill(&world, &(struct rg_get){0});
    RG_CHECK(rg_cache_find(world.c.client->cache, &key, &place));
    rg_cache_place_drop(world.c.client->cache, &place);
    fill(&world, &(struct rg_get){0});
    RG_CHECK(!rg_cache_find(world.c.client->cache, &key, &place));
    key.generation = OTHER;
    RG_CHECK(rg_cache_find(world.c.client->cache, &key, &place));
    rg_cache_place_drop(world.c.client->cache, &place);
    close_all(&world);
}

static void test_a_folder_that_cannot_be_used_is_refused_when_the_client_opens(void)
{
    struct world world;
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    open_with(&world, scripts, 1, false);
    struct rg_client_options options = world.c.options;
    options.cache = "/dev/null/folder";
    char error[512] = "";
    struct rg_client *client = NULL;
    RG_CHECK(rg_client_open_explained(&client, world.c.runtime, &options, error, sizeof(error)) <
             0);
    RG_CHECK_CONTAINS(error, "/dev/null/folder");
    options.cache = "";
    RG_CHECK_EQ(rg_client_open(&client, world.c.runtime, &options), 0);
    RG_CHECK(client->cache == NULL);
    rg_client_close(client);
    close_all(&world);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_whole_object_of_a_known_generation_is_sent_once),
        RG_TEST(test_ranges_of_a_whole_object),
        RG_TEST(test_a_range_that_was_read_is_there),
        RG_TEST(test_what_lacks_of_a_range_is_sent_for),
        RG_TEST(test_what_lacks_of_an_object_is_sent_for),
        RG_TEST(test_the_last_gap_has_all_of_the_rest),
        RG_TEST(test_what_is_behind_the_object_or_too_large_is_the_servers_to_refuse),
        RG_TEST(test_the_newest_generation_is_asked_for),
        RG_TEST(test_the_newest_generation_is_known_to_who_comes_later),
        RG_TEST(test_the_rest_of_the_newest_generation),
        RG_TEST(test_an_object_is_replaced_before_the_rest_is_read),
        RG_TEST(test_an_object_is_gone_before_the_rest_is_read),
        RG_TEST(test_an_object_is_replaced_by_a_shorter_one),
        RG_TEST(test_a_gap_breaks_off),
        RG_TEST(test_conditions_are_the_servers_to_judge),
        RG_TEST(test_what_is_stored_with_gzip_is_not_kept),
        RG_TEST(test_many_ranges),
        RG_TEST(test_a_body_whose_beginning_was_not_copied_is_not_kept),
        RG_TEST(test_gets_end_while_the_cache_is_read),
        RG_TEST(test_a_disk_that_hangs_is_waited_for_once),
        RG_TEST(test_a_disk_that_hangs_has_half_of_the_memory),
        RG_TEST(test_what_is_not_the_object_is_forgotten),
        RG_TEST(test_an_older_generation_is_forgotten),
        RG_TEST(test_a_folder_that_cannot_be_used_is_refused_when_the_client_opens),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
