/* Serves the objects of a bucket over HTTP, and reads ahead: after shard-0007.tar, shard-0008.tar
 * and so on come before somebody asks for them.  file_server PORT BUCKET [AHEAD] A connection is a
 * thread; one more takes completions. SLOTS objects are in memory at most. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <ringest/ringest.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    struct rg_completion object = {.status = RG_STATUS_BAD_REQUEST, .detail = "no valid name"};
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
    }
    pthread_mutex_unlock(&lock);
    return object;
}

static void *take_completions(void *nothing)
{
    for (struct rg_completion done; nothing == NULL;) {
        if (rg_cq_wait(cq, &done, 1, 1, RG_FOREVER) == 1) {
            pthread_mutex_lock(&lock);
            slots[done.user_data].object = done;
            slots[done.user_data].state = HERE;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
        }
    }
    return NULL;
}

static void *serve(void *connection)
{
    char line[2048], name[RG_OBJECT_NAME_SIZE_MAX + 1];
    int fd = (int)(intptr_t)connection;
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    if (fgets(line, sizeof(line), in) != NULL && sscanf(line, "GET /%1024s", name) == 1) {
        while (fgets(line, sizeof(line), in) != NULL && strcspn(line, "\r\n") > 0) {
        } /* fields, up to the blank line */
        struct rg_completion object = object_take(name);
        bool is_good = object.status == RG_STATUS_OK;
        const char *text = is_good ? object.data : object.detail;
        size_t size = is_good ? (size_t)object.size : strlen(text);
        fprintf(out, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n",
                is_good ? "200 OK" : "404 Not Found", size);
        fwrite(text, 1, size, out);
        rg_lease_release(object.lease);
    }
    fclose(in);
    fclose(out);
    return NULL;
}

int main(int argc, char **argv)
{
    struct rg_runtime *runtime;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    pthread_t thread;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: file_server PORT BUCKET [AHEAD]\n");
        return 2;
    }
    bucket = argv[2];
    ahead = argc > 3 ? strtoul(argv[3], NULL, 10) : ahead;
    if (rg_runtime_open(&runtime, NULL) < 0 || rg_client_open(&client, runtime, NULL) < 0 ||
        rg_cq_open(&cq, runtime, SLOTS) < 0) {
        fprintf(stderr, "no client could be opened; RINGEST_LOG=error says why\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, SLOTS) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
        pthread_create(&thread, NULL, take_completions, NULL) != 0) {
        perror("file_server");
        return 2;
    }
    printf("http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0) {
            pthread_detach(thread);
        }
    }
    perror("file_server");
    return 2;
}
