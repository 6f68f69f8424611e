/* Serves the objects of a bucket over HTTP to this machine, and reads ahead: after shard-0007.tar,
 * shard-0008.tar and so on come before somebody asks for them.  file_server PORT BUCKET [AHEAD]
 *
 * One thread takes completions, and each of SLOTS others answers one request after the other. At
 * most SLOTS objects are here or on their way, besides those that are being sent. What was read
 * ahead is as it was then. */
#include "http.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <ringest/ringest.h>

#define SLOTS 64

struct slot {
    enum { FREE = 0, COMING, HERE } state;
    uint64_t since;                         /* the larger, the later */
    char name[RG_OBJECT_NAME_SIZE_MAX + 1]; /* "": a connection will take the object out */
    struct rg_completion object;            /* while HERE */
};
static struct rg_client *client;
static struct rg_cq *cq;
static const char *bucket;
static unsigned long ahead = 8;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct slot slots[SLOTS]; /* under the lock */

/* The slot of an object. If there is none, asks for it in the place of the oldest that nobody
 * wants. NULL, and *rc says why: -EAGAIN, there is no room now; or there can be no such object. */
static struct slot *slot_get(const char *name, int *rc)
{
    static uint64_t now;
    struct slot *oldest = NULL;
    for (struct slot *slot = slots; slot < slots + SLOTS; slot++) {
        if (strcmp(slot->name, name) == 0 && slot->object.status == RG_STATUS_OK) {
            return slot;
        }
        bool is_idle = slot->state == FREE || (slot->state == HERE && *slot->name != '\0');
        oldest = is_idle && (!oldest || slot->since < oldest->since) ? slot : oldest;
    }
    struct rg_get get = {.bucket = bucket, .object = name};
    get.user_data = oldest != NULL ? (uint64_t)(oldest - slots) : 0;
    if ((*rc = oldest != NULL ? rg_submit_get(client, cq, &get) : -EAGAIN) < 0) {
        return NULL;
    }
    rg_lease_release(oldest->object.lease); /* of what is given up; NULL is fine */
    *oldest = (struct slot){.state = COMING, .since = ++now};
    strcpy(oldest->name, name);
    return oldest;
}

/* Makes the last number in the name one more. False: there is none. */
static bool name_next(char *name)
{
    char *end = name + strlen(name);
    while (end > name && !isdigit((unsigned char)end[-1])) {
        end--;
    }
    for (; end > name && end[-1] == '9'; end--) {
        end[-1] = '0';
    }
    return end > name && isdigit((unsigned char)end[-1]) && ++end[-1] != '\0';
}

/* Waits for the object, whose lease is the caller's then, and asks for those behind it. */
static struct rg_completion object_take(char *name)
{
    struct rg_completion object = {0};
    struct slot *slot;
    int rc = 0;
    pthread_mutex_lock(&lock);
    while ((slot = slot_get(name, &rc)) == NULL && rc == -EAGAIN) {
        pthread_cond_wait(&changed, &lock);
    }
    if (slot != NULL) {
        *slot->name = '\0';
        for (unsigned long i = 0; i < ahead && name_next(name); i++) {
            (void)slot_get(name, &rc);
        }
        while (slot->state == COMING) {
            pthread_cond_wait(&changed, &lock);
        }
        object = slot->object;
        *slot = (struct slot){.state = FREE};
        pthread_cond_broadcast(&changed);
    } else {
        object.status = rc == -EINVAL ? RG_STATUS_BAD_REQUEST : RG_STATUS_NO_RESOURCES;
        object.detail = strerror(-rc);
    }
    pthread_mutex_unlock(&lock);
    return object;
}

static void take_completions(void)
{
    for (struct rg_completion done;;) {
        if (rg_cq_wait(cq, &done, 1, 1, RG_FOREVER) == 1) {
            pthread_mutex_lock(&lock);
            slots[done.user_data].object = done;
            slots[done.user_data].state = HERE;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
        }
    }
}

static const char *answer_of(enum rg_status status)
{
    return status == RG_STATUS_OK            ? "200 OK"
           : status == RG_STATUS_BAD_REQUEST ? "400 Bad Request"
           : status == RG_STATUS_PERMISSION  ? "403 Forbidden"
           : status == RG_STATUS_NOT_FOUND   ? "404 Not Found"
           : rg_status_retryable(status)     ? "503 Service Unavailable"
                                             : "502 Bad Gateway";
}

static void *serve(void *listener)
{
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
    for (FILE *connection;;) {
        while ((connection = http_accept((int)(intptr_t)listener)) == NULL) {
        }
        const char *answer = http_read(connection, name);
        if (answer != NULL && strcmp(answer, "200 OK") == 0) {
            struct rg_completion object = object_take(name);
            bool is_good = object.status == RG_STATUS_OK;
            http_answer(connection, answer_of(object.status),
                        object.is_gzip ? "Content-Encoding: gzip\r\n" : "",
                        is_good ? object.data : object.detail,
                        is_good ? object.size : strlen(object.detail));
            rg_lease_release(object.lease);
        } else if (answer != NULL) {
            http_answer(connection, answer, "", NULL, 0);
        }
        fclose(connection);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct rg_runtime *runtime;
    unsigned long port;
    char rest;
    if (argc < 3 || argc > 4 || sscanf(argv[1], "%lu%c", &port, &rest) != 1 || port > 65535 ||
        (argc > 3 && (sscanf(argv[3], "%lu%c", &ahead, &rest) != 1 || ahead > SLOTS / 2))) {
        fprintf(stderr, "usage: file_server PORT BUCKET [AHEAD]\n");
        return 2;
    }
    bucket = argv[2];
    if (rg_runtime_open(&runtime, NULL) < 0 || rg_client_open(&client, runtime, NULL) < 0 ||
        rg_cq_open(&cq, runtime, SLOTS) < 0) {
        fprintf(stderr, "no client could be opened; RINGEST_LOG=error says why\n");
        return 2;
    }
    int listener = http_listen(port), count = 0;
    for (pthread_t thread; listener >= 0 && count < SLOTS; count++) {
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener) != 0) {
            break; /* fewer will do */
        }
    }
    if (count == 0) {
        perror("file_server");
        return 2;
    }
    take_completions();
}
