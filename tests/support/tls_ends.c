/* Two ends of a TLS connection in memory: see tls_ends.h. */
#include "tests/support/tls_ends.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rg_test_pki_init(struct rg_test_pki *pki)
{
    rg_test_certificate_make(
        &pki->ca, &(struct rg_test_certificate_spec){.common_name = "Test CA", .authority = true});
    rg_test_certificate_make(&pki->leaf, &(struct rg_test_certificate_spec){
                                             .common_name = "leaf",
                                             .alt_names = "DNS:localhost,DNS:a.example,"
                                                          "IP:127.0.0.1,IP:::1",
                                             .issuer = &pki->ca,
                                         });
    rg_test_file_make(pki->ca.cert_pem, pki->ca_path);
}

void rg_test_pki_fini(struct rg_test_pki *pki)
{
    unlink(pki->ca_path);
    rg_test_certificate_free(&pki->leaf);
    rg_test_certificate_free(&pki->ca);
}

struct rg_tls_context *rg_test_client_context(const struct rg_test_pki *pki, bool boringssl_records)
{
    char error[256];
    struct rg_tls_context *context = NULL;
    struct rg_tls_client_options options = {
        .ca_file = pki->ca_path,
        .boringssl_records = boringssl_records,
    };
    RG_ASSERT(rg_tls_context_open_client(&context, &options, error, sizeof(error)) == 0);
    return context;
}

struct rg_tls_context *rg_test_server_context(const struct rg_test_certificate *leaf)
{
    char error[256];
    struct rg_tls_context *context = NULL;
    struct rg_tls_server_options options = {
        .cert_pem = leaf->cert_pem,
        .cert_size = strlen(leaf->cert_pem),
        .key_pem = leaf->key_pem,
        .key_size = strlen(leaf->key_pem),
    };
    RG_ASSERT(rg_tls_context_open_server(&context, &options, error, sizeof(error)) == 0);
    return context;
}

void rg_test_end_init(struct rg_test_end *end)
{
    *end = (struct rg_test_end){0};
    end->out = (struct rg_tls_out){.data = end->out_data, .capacity = sizeof(end->out_data)};
    RG_ASSERT(rg_tls_loop_init(&end->loop, 2) == 0);
}

void rg_test_end_reset(struct rg_test_end *end)
{
    rg_tls_fini(&end->tls);
    end->out.size = 0;
}

void rg_test_end_fini(struct rg_test_end *end)
{
    rg_test_end_reset(end);
    rg_tls_loop_fini(&end->loop);
}

/* One call of handshake with what the other end sent. */
static int shake_once(struct rg_test_end *end, struct rg_test_end *from)
{
    struct rg_tls_in in = {from->out.data, from->out.size};
    int ret = rg_tls_handshake(&end->tls, &in, &end->out);
    memmove(from->out.data, in.data, in.size);
    from->out.size = in.size;
    return ret;
}

int rg_test_shake_ours(struct rg_test_end *client, struct rg_test_end *server)
{
    for (int i = 0; i < 16; i++) {
        struct rg_test_end *end = i % 2 == 0 ? client : server;
        struct rg_test_end *other = i % 2 == 0 ? server : client;
        if (!rg_tls_established(&end->tls)) {
            int ret = shake_once(end, other);
            if (ret != 0 && ret != -EAGAIN) {
                return ret;
            }
        }
        if (rg_tls_established(&client->tls) && rg_tls_established(&server->tls)) {
            return 0;
        }
    }
    return -ETIME;
}

SSL_CTX *rg_test_raw_context(const struct rg_test_certificate *leaf)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    RG_ASSERT(context != NULL);
    if (leaf != NULL) {
        RG_ASSERT(SSL_CTX_use_certificate(context, leaf->x509) == 1);
        RG_ASSERT(SSL_CTX_use_PrivateKey(context, leaf->key) == 1);
    }
    return context;
}

static SSL *raw_new(SSL_CTX *context)
{
    SSL *ssl = SSL_new(context);
    RG_ASSERT(ssl != NULL);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in, -1);
    BIO_set_mem_eof_return(out, -1);
    SSL_set_bio(ssl, in, out);
    return ssl;
}

SSL *rg_test_raw_server(SSL_CTX *context)
{
    SSL *ssl = raw_new(context);
    SSL_set_accept_state(ssl);
    return ssl;
}

SSL *rg_test_raw_client(SSL_CTX *context)
{
    SSL *ssl = raw_new(context);
    SSL_set_connect_state(ssl);
    return ssl;
}

void rg_test_to_raw(struct rg_test_end *end, SSL *raw)
{
    if (end->out.size > 0) {
        RG_ASSERT(BIO_write(SSL_get_rbio(raw), end->out.data, (int)end->out.size) ==
                  (int)end->out.size);
        end->out.size = 0;
    }
}

size_t rg_test_from_raw(SSL *raw, uint8_t *out, size_t room)
{
    int ret = BIO_read(SSL_get_wbio(raw), out, (int)room);
    return ret > 0 ? (size_t)ret : 0;
}

/* Feeds `size` bytes in steps. */
static int shake_fed(struct rg_test_end *end, struct rg_tls_in *in, size_t step)
{
    int ret = -EAGAIN;
    while (ret == -EAGAIN && in->size > 0) {
        struct rg_tls_in part = {in->data, step == 0 ? in->size : RG_MIN(step, in->size)};
        size_t offered = part.size;
        ret = rg_tls_handshake(&end->tls, &part, &end->out);
        in->data += offered - part.size;
        in->size -= offered - part.size;
    }
    return ret;
}

int rg_test_shake_raw(struct rg_test_end *end, SSL *raw, size_t step, struct rg_tls_out *rest)
{
    static uint8_t wire[RG_KIB(256)];
    int ret = -EAGAIN;
    for (int i = 0; i < 16 && (ret == -EAGAIN || !SSL_is_init_finished(raw)); i++) {
        struct rg_tls_in in = {wire, rg_test_from_raw(raw, wire, sizeof(wire))};
        if (ret == -EAGAIN) {
            ret = in.size > 0 ? shake_fed(end, &in, step)
                              : rg_tls_handshake(&end->tls, &in, &end->out);
        }
        if (in.size > 0 && rest != NULL) {
            RG_ASSERT(rest->size + in.size <= rest->capacity);
            memcpy(rest->data + rest->size, in.data, in.size);
            rest->size += in.size;
        }
        rg_test_to_raw(end, raw);
        ERR_clear_error();
        SSL_do_handshake(raw);
        ERR_clear_error();
    }
    return ret;
}
