/* See index_memory.h. */
#include "cache/index_memory.h"

#include "cache/files.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first page, which says what it is. */
#define HEAD_SIZE RG_KIB(4)
#define MODE 0600

struct head {
    char magic[8];
    struct rg_cache_nonce nonce;
    uint64_t lines;
    char path[RG_CACHE_INDEX_PATH_SIZE_MAX]; /* of the file that names it */
};

static const char magic[8] = "ringslt";

static size_t size_of(uint64_t lines)
{
    return HEAD_SIZE + lines * RG_CACHE_LINE_SIZE;
}

/* A child may only close what it has of a cache. */
static void take(struct rg_cache_index_memory *memory, void *bytes, uint64_t lines)
{
    memory->bytes = bytes;
    memory->lines = lines;
    memory->slots = (struct rg_cache_slot *)((uint8_t *)bytes + HEAD_SIZE);
    (void)madvise(bytes, size_of(lines), MADV_DONTFORK);
}

static int private_make(struct rg_cache_index_memory *memory, uint64_t lines)
{
    void *bytes = mmap(NULL, size_of(lines), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        return -errno;
    }
    take(memory, bytes, lines);
    return 0;
}

/* What nobody knows yet; it has no pages before its head is written. */
static int drop_new(int id)
{
    int rc = -errno;
    (void)shmctl(id, IPC_RMID, NULL);
    return rc;
}

int rg_cache_index_memory_make(struct rg_cache_index_memory *memory, const char *path,
                               uint64_t lines)
{
    *memory = (struct rg_cache_index_memory){.id = -1};
    if (path == NULL) {
        return private_make(memory, lines);
    }
    int id = shmget(IPC_PRIVATE, size_of(lines), IPC_CREAT | MODE);
    if (id < 0) {
        return -errno;
    }
    void *bytes = shmat(id, NULL, 0);
    if (bytes == (void *)-1) {
        return drop_new(id);
    }
    struct head *head = bytes;
    rg_cache_nonce_draw(&memory->nonce);
    head->nonce = memory->nonce;
    head->lines = lines;
    memccpy(head->path, path, '\0', sizeof(head->path) - 1);
    memcpy(head->magic, magic, sizeof(magic));
    memory->id = id;
    take(memory, bytes, lines);
    return 0;
}

/* Of this user alone, and not plainly of another program: that one may go by how many have its own
 * attached, and does not expect us among them. */
static bool is_own(const struct shmid_ds *status)
{
    return status->shm_perm.uid == geteuid() && (status->shm_perm.mode & 0777) == MODE &&
           status->shm_perm.__key == IPC_PRIVATE && status->shm_segsz > HEAD_SIZE &&
           (status->shm_segsz - HEAD_SIZE) % RG_CACHE_LINE_SIZE == 0;
}

/* 0 and the head of a segment that may be anybody's, attached; -ENOENT: it is none of ours, or
 * gone; or another negative errno. */
static int head_attach(int id, struct head **out_head, size_t *out_size)
{
    struct shmid_ds status;
    if (shmctl(id, IPC_STAT, &status) < 0) {
        return errno == EINVAL || errno == EIDRM || errno == EACCES ? -ENOENT : -errno;
    }
    if (!is_own(&status)) {
        return -ENOENT;
    }
    struct head *head = shmat(id, NULL, 0);
    if (head == (void *)-1) {
        return errno == EINVAL || errno == EIDRM ? -ENOENT : -errno;
    }
    if (memcmp(head->magic, magic, sizeof(magic)) != 0 ||
        head->path[sizeof(head->path) - 1] != '\0') {
        (void)shmdt(head);
        return -ENOENT;
    }
    *out_head = head;
    *out_size = status.shm_segsz;
    return 0;
}

int rg_cache_index_memory_attach(struct rg_cache_index_memory *memory, int id,
                                 const struct rg_cache_nonce *nonce, uint64_t lines)
{
    size_t size;
    struct head *head;
    *memory = (struct rg_cache_index_memory){.id = -1};
    int rc = head_attach(id, &head, &size);
    if (rc < 0) {
        return rc;
    }
    if (head->lines != lines || size != size_of(lines) ||
        memcmp(&head->nonce, nonce, sizeof(*nonce)) != 0) {
        (void)shmdt(head);
        return -ENOENT;
    }
    memory->id = id;
    memory->nonce = *nonce;
    take(memory, head, lines);
    return 0;
}

void rg_cache_index_memory_detach(struct rg_cache_index_memory *memory)
{
    if (memory->bytes != NULL && memory->id >= 0) {
        (void)shmdt(memory->bytes);
    } else if (memory->bytes != NULL) {
        (void)munmap(memory->bytes, size_of(memory->lines));
    }
    *memory = (struct rg_cache_index_memory){.id = -1};
}

void rg_cache_index_memory_remove(int id, const struct rg_cache_nonce *nonce)
{
    size_t size;
    struct head *head;
    if (id < 0 || head_attach(id, &head, &size) < 0) {
        return;
    }
    if (memcmp(&head->nonce, nonce, sizeof(*nonce)) == 0) {
        (void)shmctl(id, IPC_RMID, NULL);
    }
    (void)shmdt(head);
}

/* A segment that has no file yet is attached by whoever makes it. */
static void sweep_one(int id, bool (*is_named)(const char *path, int id,
                                               const struct rg_cache_nonce *nonce))
{
    size_t size;
    struct head *head;
    if (head_attach(id, &head, &size) < 0) {
        return;
    }
    if (!is_named(head->path, id, &head->nonce)) {
        (void)shmctl(id, IPC_RMID, NULL);
    }
    (void)shmdt(head);
}

void rg_cache_index_memory_sweep(bool (*is_named)(const char *path, int id,
                                                  const struct rg_cache_nonce *nonce))
{
    struct shm_info info;
    struct shmid_ds status;
    int last = shmctl(0, SHM_INFO, (struct shmid_ds *)&info);
    for (int i = 0; i <= last; i++) {
        int id = shmctl(i, SHM_STAT, &status);
        if (id >= 0 && is_own(&status) && status.shm_nattch == 0) {
            sweep_one(id, is_named);
        }
    }
}

uint64_t rg_cache_index_memory_space(void)
{
    struct stat status = {.st_ino = 0};
    (void)stat("/proc/self/ns/ipc", &status);
    return (uint64_t)status.st_ino;
}
