/* A store on disk below a temporary root: what the tests of both kinds of buckets share. */
#ifndef RG_TESTS_EMULATOR_ROOT_CASE_H
#define RG_TESTS_EMULATOR_ROOT_CASE_H

#include "emulator/store/store.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static struct rg_store *store;

static inline void open_store(void)
{
    char error[512] = "";
    struct rg_store_options options = {.root = root};
    if (rg_store_open(&store, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

static inline void reopen_store(void)
{
    rg_store_close(store);
    open_store();
}

static inline void make_root(void)
{
    strcpy(root, "/tmp/ringest-test-XXXXXX");
    RG_CHECK(mkdtemp(root) != NULL);
    open_store();
}

static inline int remove_entry(const char *path, const struct stat *status, int type,
                               struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

static inline void remove_root(void)
{
    rg_store_close(store);
    RG_CHECK_EQ(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Writes to a file as another process would. `flags` says how: O_TRUNC or O_APPEND. */
static inline void write_file(const char *path, int flags, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

#endif
