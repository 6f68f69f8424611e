/* bssl::SSL_get_traffic_secrets for C. BoringSSL's other way to a traffic secret, its key log,
 * prints every secret of a connection as text on the heap; this copies the one that is needed. */
#include "http/tls_secrets.h"

#include <cerrno>
#include <cstring>
#include <openssl/ssl.h>

int rg_tls_secret_read(const struct ssl_st *ssl, uint8_t *secret, size_t room, size_t *out_size)
{
    bssl::Span<const uint8_t> read, write;
    if (!bssl::SSL_get_traffic_secrets(ssl, &read, &write) || read.size() > room) {
        return -EINVAL;
    }
    std::memcpy(secret, read.data(), read.size());
    *out_size = read.size();
    return 0;
}
