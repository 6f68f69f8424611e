/* The BIO and the buffers of a loop's TLS connections: see tls_loop.h. */
#include "http/tls_loop.h"

#include <errno.h>
#include <openssl/bio.h>
#include <string.h>

/* Besides the buffers for cut records: handshake messages that span records are rare. */
#define MESSAGE_BUFFERS 64

static int bio_read(BIO *bio, char *data, int size)
{
    struct rg_tls_loop *loop = BIO_get_data(bio);
    RG_ASSERT(loop->bio == bio);
    RG_ASSERT(size >= 0);
    BIO_clear_retry_flags(bio);
    if (loop->in == NULL || loop->in->size == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t part = RG_MIN((size_t)size, loop->in->size);
    memcpy(data, loop->in->data, part);
    loop->in->data += part;
    loop->in->size -= part;
    return (int)part;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct rg_tls_loop *loop = BIO_get_data(bio);
    RG_ASSERT(loop->out != NULL);
    RG_ASSERT(loop->out->size <= loop->out->capacity);
    BIO_clear_retry_flags(bio);
    size_t part = RG_MIN((size_t)size, loop->out->capacity - loop->out->size);
    if (part == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(loop->out->data + loop->out->size, data, part);
    loop->out->size += part;
    return (int)part;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

int rg_tls_loop_init(struct rg_tls_loop *loop, uint32_t connection_max)
{
    RG_ASSERT(connection_max > 0);
    RG_ASSERT(connection_max <= UINT32_MAX - MESSAGE_BUFFERS);
    *loop = (struct rg_tls_loop){0};
    BIO_METHOD *method = BIO_meth_new(0, "span");
    if (method != NULL && BIO_meth_set_read(method, bio_read) == 1 &&
        BIO_meth_set_write(method, bio_write) == 1 && BIO_meth_set_ctrl(method, bio_control) == 1) {
        loop->bio = BIO_new(method);
    }
    if (loop->bio == NULL) {
        BIO_meth_free(method);
        return -ENOMEM;
    }
    loop->method = method;
    BIO_set_data(loop->bio, loop);
    BIO_set_init(loop->bio, 1);
    int ret = rg_tls_buffers_init(&loop->buffers, connection_max + MESSAGE_BUFFERS);
    if (ret != 0) {
        rg_tls_loop_fini(loop);
    }
    return ret;
}

void rg_tls_loop_fini(struct rg_tls_loop *loop)
{
    RG_ASSERT(loop->in == NULL);
    RG_ASSERT(loop->out == NULL);
    BIO_free(loop->bio);
    BIO_meth_free(loop->method);
    rg_tls_buffers_fini(&loop->buffers);
    *loop = (struct rg_tls_loop){0};
}
