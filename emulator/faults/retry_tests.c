/* See retry_tests.h. */
#include "emulator/faults/retry_tests.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define ID_SIZE 32

struct instruction {
    struct rg_fault_action action;
    uint8_t method;
    bool done;
    char text[RG_INSTRUCTION_SIZE_MAX + 1];
};

struct rg_retry_test {
    struct rg_list node;
    char id[ID_SIZE + 1];
    uint64_t serial; /* From 1. */
    size_t count;
    struct instruction instructions[RG_RETRY_INSTRUCTIONS_MAX]; /* Those of one method in order. */
};

struct rg_retry_tests {
    pthread_mutex_t lock;
    struct rg_list list; /* In the order of their serials. The rest is under the lock. */
    uint32_t count;
    uint64_t serial; /* The last one given. */
};

/* The instructions of a method are used up in their order. */
static bool test_valid(const struct rg_retry_test *test)
{
    bool left[RG_METHOD_COUNT] = {false};
    for (size_t i = 0; i < test->count; i++) {
        const struct instruction *instruction = &test->instructions[i];
        if (instruction->method >= RG_METHOD_COUNT ||
            (instruction->done && left[instruction->method])) {
            return false;
        }
        left[instruction->method] |= !instruction->done;
    }
    return test->count <= RG_RETRY_INSTRUCTIONS_MAX;
}

/* There are as many tests as are counted, with serials that grow. */
static bool invariants(const struct rg_retry_tests *tests)
{
    uint32_t count = 0;
    uint64_t last = 0;
    for (struct rg_list *at = tests->list.next; at != &tests->list; at = at->next) {
        const struct rg_retry_test *test = RG_CONTAINER_OF(at, struct rg_retry_test, node);
        if (test->serial <= last || !test_valid(test)) {
            return false;
        }
        last = test->serial;
        count++;
    }
    return count == tests->count && count <= RG_RETRY_TESTS_MAX && last <= tests->serial;
}

int rg_retry_tests_create(struct rg_retry_tests **out_tests)
{
    struct rg_retry_tests *tests = calloc(1, sizeof(*tests));
    if (tests == NULL) {
        return -ENOMEM;
    }
    pthread_mutex_init(&tests->lock, NULL);
    rg_list_init(&tests->list);
    *out_tests = tests;
    return 0;
}

void rg_retry_tests_destroy(struct rg_retry_tests *tests)
{
    if (tests == NULL) {
        return;
    }
    struct rg_list *node;
    while ((node = rg_list_pop_front(&tests->list)) != NULL) {
        free(RG_CONTAINER_OF(node, struct rg_retry_test, node));
    }
    pthread_mutex_destroy(&tests->lock);
    free(tests);
}

struct rg_retry_test *rg_retry_test_create(void)
{
    return calloc(1, sizeof(struct rg_retry_test));
}

void rg_retry_test_destroy(struct rg_retry_test *test)
{
    free(test);
}

int rg_retry_test_add(struct rg_retry_test *test, enum rg_method method, const char *instruction)
{
    if (test->count == RG_RETRY_INSTRUCTIONS_MAX) {
        return -ENOSPC;
    }
    struct instruction *next = &test->instructions[test->count];
    if (strlen(instruction) > RG_INSTRUCTION_SIZE_MAX ||
        !rg_instruction_parse(instruction, &next->action)) {
        return -EINVAL;
    }
    next->method = (uint8_t)method;
    next->done = false;
    strcpy(next->text, instruction);
    test->count++;
    return 0;
}

static struct rg_retry_test *find_locked(struct rg_retry_tests *tests, struct rg_h1_slice id)
{
    for (struct rg_list *at = tests->list.next; at != &tests->list; at = at->next) {
        struct rg_retry_test *test = RG_CONTAINER_OF(at, struct rg_retry_test, node);
        if (rg_text_equals(id, test->id)) {
            return test;
        }
    }
    return NULL;
}

/* The next instruction of a method; NULL when all are done. */
static struct instruction *next_instruction(struct rg_retry_test *test, enum rg_method method)
{
    for (size_t i = 0; i < test->count; i++) {
        if (test->instructions[i].method == method && !test->instructions[i].done) {
            return &test->instructions[i];
        }
    }
    return NULL;
}

static bool is_complete(const struct rg_retry_test *test)
{
    for (size_t i = 0; i < test->count; i++) {
        if (!test->instructions[i].done) {
            return false;
        }
    }
    return true;
}

static void append(struct rg_text *text, const struct rg_retry_test *test)
{
    bool any_method = false;
    rg_text_printf(text, "{\"id\":\"%s\",\"instructions\":{", test->id);
    for (unsigned method = 0; method < RG_METHOD_COUNT; method++) {
        bool any = false;
        for (size_t i = 0; i < test->count; i++) {
            if (test->instructions[i].method != method) {
                continue;
            }
            if (!any) {
                rg_text_printf(text, "%s\"%s\":[", any_method ? "," : "",
                               rg_method_name((enum rg_method)method));
            }
            rg_text_printf(text, "%s\"%s\"", any ? "," : "", test->instructions[i].text);
            any = any_method = true;
        }
        rg_text_append_str(text, any ? "]" : "");
    }
    rg_text_printf(text, "},\"completed\":%s,\"transport\":\"HTTP\"}",
                   is_complete(test) ? "true" : "false");
}

/* Gives the test an id that nobody else has: its serial number, behind something random. */
static void give_id(struct rg_retry_test *test)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random)) {
        random = (uint64_t)(uintptr_t)test;
    }
    snprintf(test->id, sizeof(test->id), "%016" PRIx64 "%016" PRIx64, random, test->serial);
}

int rg_retry_tests_keep(struct rg_retry_tests *tests, struct rg_retry_test *test,
                        struct rg_text *text)
{
    pthread_mutex_lock(&tests->lock);
    bool room = tests->count < RG_RETRY_TESTS_MAX;
    if (room) {
        test->serial = ++tests->serial;
        give_id(test);
        append(text, test);
        rg_list_push_back(&tests->list, &test->node);
        tests->count++;
    }
    RG_VERIFY(invariants(tests));
    pthread_mutex_unlock(&tests->lock);
    return room ? 0 : -ENOSPC;
}

void rg_retry_tests_append_all(struct rg_retry_tests *tests, struct rg_text *text)
{
    pthread_mutex_lock(&tests->lock);
    for (struct rg_list *at = tests->list.next; at != &tests->list; at = at->next) {
        rg_text_append_str(text, at == tests->list.next ? "" : ",");
        append(text, RG_CONTAINER_OF(at, struct rg_retry_test, node));
    }
    pthread_mutex_unlock(&tests->lock);
}

int rg_retry_tests_append(struct rg_retry_tests *tests, struct rg_h1_slice id, struct rg_text *text)
{
    pthread_mutex_lock(&tests->lock);
    struct rg_retry_test *test = find_locked(tests, id);
    if (test != NULL) {
        append(text, test);
    }
    pthread_mutex_unlock(&tests->lock);
    return test != NULL ? 0 : -ENOENT;
}

int rg_retry_tests_remove(struct rg_retry_tests *tests, struct rg_h1_slice id)
{
    pthread_mutex_lock(&tests->lock);
    struct rg_retry_test *test = find_locked(tests, id);
    if (test != NULL) {
        rg_list_remove(&test->node);
        tests->count--;
    }
    RG_VERIFY(invariants(tests));
    pthread_mutex_unlock(&tests->lock);
    free(test);
    return test != NULL ? 0 : -ENOENT;
}

int rg_retry_tests_find(struct rg_retry_tests *tests, struct rg_h1_slice id, enum rg_method method,
                        struct rg_fault *fault)
{
    pthread_mutex_lock(&tests->lock);
    struct rg_retry_test *test = find_locked(tests, id);
    struct instruction *next = test != NULL ? next_instruction(test, method) : NULL;
    if (next != NULL) {
        fault->action = next->action;
        fault->test_serial = test->serial;
        fault->index = (uint16_t)(next - test->instructions);
    }
    pthread_mutex_unlock(&tests->lock);
    return test != NULL ? 0 : -ENOENT;
}

bool rg_retry_tests_use(struct rg_retry_tests *tests, const struct rg_fault *fault)
{
    bool used = fault->test_serial == 0;
    pthread_mutex_lock(&tests->lock);
    for (struct rg_list *at = tests->list.next; !used && at != &tests->list; at = at->next) {
        struct rg_retry_test *test = RG_CONTAINER_OF(at, struct rg_retry_test, node);
        if (test->serial == fault->test_serial) {
            used = !test->instructions[fault->index].done;
            test->instructions[fault->index].done = true;
            RG_VERIFY(test_valid(test));
        }
    }
    pthread_mutex_unlock(&tests->lock);
    return used;
}
