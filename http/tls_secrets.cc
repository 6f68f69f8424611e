/* bssl::SSL_get_traffic_secrets for C. BoringSSL's other way to a traffic secret, its key log,
 * prints every secret of a connection as text on the heap; this copies the one that is needed.
 *
 * bssl::tls_seal_record is what SSL_write itself seals with, and keeps keys and sequence numbers in
 * the one place where they are. It is not declared in an installed header, so a BoringSSL of the
 * user's may be without it: then it is null here. */
#include "http/tls_secrets.h"

#include <cerrno>
#include <cstring>
#include <openssl/ssl.h>

namespace bssl {
__attribute__((weak)) bool tls_seal_record(SSL *ssl, uint8_t *out, size_t *out_len, size_t max_out,
                                           uint8_t type, const uint8_t *in, size_t in_len);
}

int rg_tls_seal_direct(struct ssl_st *ssl, const uint8_t *data, size_t size, uint8_t *out,
                       size_t room, size_t *out_size)
{
    if (bssl::tls_seal_record == nullptr) {
        return -ENOTSUP;
    }
    if (!bssl::tls_seal_record(ssl, out, out_size, room, SSL3_RT_APPLICATION_DATA, data, size)) {
        return -EPROTO;
    }
    return 0;
}

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
