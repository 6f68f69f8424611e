/* Bundles of trusted certificates: whatever the text, the store of all has what BoringSSL's own
 * reading of it has, in the same order; and the store of what a certificate needs has all that bear
 * its issuer's name, where that is one, and no others of one name. So a chain finds the same
 * issuers in both. */
#include "http/tls_roots.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATH_SIZE 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t store_size(X509_STORE *store)
{
    return sk_X509_OBJECT_num(X509_STORE_get0_objects(store));
}

/* NULL: a revocation list. */
static X509 *store_get(X509_STORE *store, size_t i)
{
    return X509_OBJECT_get0_X509(sk_X509_OBJECT_value(X509_STORE_get0_objects(store), i));
}

/* How many in the store bear the name. */
static size_t count_named(X509_STORE *store, const X509_NAME *name)
{
    size_t count = 0;
    for (size_t i = 0; i < store_size(store); i++) {
        X509 *one = store_get(store, i);
        count += one != NULL && X509_NAME_cmp(X509_get_subject_name(one), name) == 0;
    }
    return count;
}

static void check_some(struct rg_tls_roots *roots, X509_STORE *want)
{
    for (size_t i = 0; i < store_size(want); i++) {
        X509 *subject = store_get(want, i);
        X509_STORE *some = subject == NULL ? NULL : rg_tls_roots_some(roots, subject, NULL);
        if (some == NULL) {
            continue;
        }
        const X509_NAME *issuer = X509_get_issuer_name(subject);
        RG_ASSERT(count_named(some, issuer) == count_named(want, issuer));
        for (size_t j = 0; j < store_size(some); j++) {
            RG_ASSERT(count_named(want, X509_get_subject_name(store_get(some, j))) == 1);
        }
    }
}

static void check_all(X509_STORE *all, X509_STORE *want)
{
    RG_ASSERT(all != NULL && store_size(all) == store_size(want));
    for (size_t i = 0; i < store_size(want); i++) {
        X509 *got = store_get(all, i), *wanted = store_get(want, i);
        RG_ASSERT((got == NULL) == (wanted == NULL));
        RG_ASSERT(got == NULL || X509_cmp(got, wanted) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_SIZE];
    struct rg_tls_roots *roots = NULL;
    X509_STORE *want = X509_STORE_new();
    int fd = memfd_create("bundle", MFD_CLOEXEC);
    RG_ASSERT(want != NULL && fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ERR_clear_error();
    bool good = X509_STORE_load_locations(want, path, NULL) == 1;
    uint32_t why = ERR_peek_last_error();
    int ret = rg_tls_roots_open(&roots, path, NULL);
    close(fd);
    if (good) {
        RG_ASSERT(ret == 0);
        check_some(roots, want);
        check_all(rg_tls_roots_all(roots), want);
        RG_ASSERT(rg_tls_roots_broken(roots) == 0);
    } else if (ret == 0) {
        RG_ASSERT(rg_tls_roots_all(roots) != NULL && rg_tls_roots_broken(roots) > 0);
    } else {
        RG_ASSERT(ret == -EINVAL && ERR_GET_REASON(ERR_peek_last_error()) == ERR_GET_REASON(why));
    }
    ERR_clear_error();
    X509_STORE_free(want);
    rg_tls_roots_close(roots);
    return 0;
}
