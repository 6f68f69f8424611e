/* A made-up root: see root.h. */
#include "tests/support/root.h"

#include "tests/support/test.h"

#include <ftw.h>
#include <sys/stat.h>

static char root[] = "/tmp/ringest-root-XXXXXX";

static void folders_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        RG_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

void rg_root_write_bytes(const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof(path), "%s%s", root, name);
    folders_make(path);
    FILE *file = fopen(path, "we");
    RG_CHECK(file != NULL);
    RG_CHECK_EQ(fwrite(data, 1, size, file), size);
    RG_CHECK_EQ(fclose(file), 0);
}

void rg_root_write(const char *name, const char *text)
{
    rg_root_write_bytes(name, text, strlen(text));
}

static int entry_remove(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    (void)stat;
    (void)kind;
    (void)where;
    return remove(path);
}

void rg_root_remove(void)
{
    RG_CHECK_EQ(nftw(root, entry_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *rg_root_make(void)
{
    strcpy(root + strlen(root) - 6, "XXXXXX");
    RG_CHECK(mkdtemp(root) != NULL);
    return root;
}
