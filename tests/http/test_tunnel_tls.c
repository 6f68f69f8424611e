/* TLS around what goes through a tunnel: bytes are wrapped, carried over to the other end, and
 * taken out again. */
#include "http/tunnel_tls.h"

#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#define PLAIN_SIZE RG_KIB(512)

static struct rg_test_pki pki;
static struct rg_tls_context *context, *server_context;
static struct rg_tls_peer peer;
static struct rg_test_end proxy;

/* Our end, with the loop's buffers. */
static struct rg_tls_loop loop;
static struct rg_send_buffers buffers;
static struct rg_tunnel_tls outer;
static uint8_t text[RG_KIB(64)], plain[PLAIN_SIZE];

static void shake(void)
{
    uint8_t hello[RG_KIB(4)];
    struct rg_tls_out out = {hello, 0, sizeof(hello)};
    int ours = -EAGAIN;
    for (int i = 0; i < 8 && (ours != 0 || !rg_tls_established(&proxy.tls)); i++) {
        struct rg_tls_in in = {proxy.out.data, proxy.out.size};
        ours = ours == 0 ? 0 : rg_tls_handshake(&outer.tls, &in, &out);
        proxy.out.size = 0;
        struct rg_tls_in back = {hello, out.size};
        if (!rg_tls_established(&proxy.tls)) {
            int ret = rg_tls_handshake(&proxy.tls, &back, &proxy.out);
            RG_CHECK(ret == 0 || ret == -EAGAIN);
        }
        out.size = 0;
    }
    RG_CHECK_EQ(ours, 0);
}

static void set_up(void)
{
    rg_test_end_reset(&proxy);
    RG_CHECK_EQ(rg_tls_init_server(&proxy.tls, &proxy.loop, server_context), 0);
    RG_CHECK_EQ(rg_tunnel_tls_init(&outer, &loop, &peer), 0);
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (uint8_t)rg_test_random();
    }
    shake();
}

static void test_what_is_wrapped_arrives_in_order(void)
{
    static uint8_t got[RG_KIB(64)];
    size_t done = 0;
    set_up();
    struct rg_send_buffer *buffer = rg_send_buffer_borrow(&buffers, true);
    memcpy(buffer->data, text, sizeof(text));
    buffer->size = sizeof(text);
    RG_CHECK_EQ(rg_tunnel_tls_wrap(&outer, &buffers, buffer), 0);
    RG_CHECK_EQ(buffer->sending, sizeof(text));
    struct rg_tls_in in = {outer.wire->data, outer.wire->size};
    ssize_t ret;
    while ((ret = rg_tls_open(&proxy.tls, &in, got + done, sizeof(got) - done, &proxy.out)) > 0) {
        done += (size_t)ret;
    }
    RG_CHECK_EQ(ret, 0);
    RG_CHECK_MEM(got, done, text, sizeof(text));
    rg_tunnel_tls_sent(&outer, &buffers);
    rg_tunnel_tls_sent(&outer, &buffers);
    rg_send_buffer_return(&buffers, buffer);
    RG_CHECK_EQ(buffers.lent_bytes, 0);
    rg_tunnel_tls_fini(&outer);
}

static void test_records_cut_anywhere_are_unwrapped(void)
{
    size_t done = 0;
    set_up();
    proxy.out.size = 0;
    RG_CHECK_EQ(rg_tls_seal(&proxy.tls, text, 40000, &proxy.out), 40000);
    for (size_t at = 0; at < proxy.out.size; at += 7000) {
        struct rg_tls_in in = {proxy.out.data + at, RG_MIN((size_t)7000, proxy.out.size - at)};
        RG_CHECK_EQ(rg_tunnel_tls_unwrap(&outer, &in, plain, PLAIN_SIZE), 0);
        RG_CHECK_MEM(in.data, in.size, text + done, in.size);
        done += in.size;
    }
    RG_CHECK_EQ(done, 40000);
    rg_tunnel_tls_fini(&outer);
}

static void test_the_end_is_told_behind_the_bytes(void)
{
    set_up();
    proxy.out.size = 0;
    RG_CHECK_EQ(rg_tls_seal(&proxy.tls, text, 10, &proxy.out), 10);
    RG_CHECK_EQ(rg_tls_close_notify(&proxy.tls, &proxy.out), 0);
    struct rg_tls_in in = {proxy.out.data, proxy.out.size};
    RG_CHECK_EQ(rg_tunnel_tls_unwrap(&outer, &in, plain, PLAIN_SIZE), 0);
    RG_CHECK_EQ(in.size, 10);
    in = (struct rg_tls_in){proxy.out.data, 0};
    RG_CHECK_EQ(rg_tunnel_tls_unwrap(&outer, &in, plain, PLAIN_SIZE), -ENODATA);
    rg_tunnel_tls_fini(&outer);
}

static void test_damage_ends_it_and_nothing_is_wrapped_any_more(void)
{
    set_up();
    proxy.out.size = 0;
    RG_CHECK_EQ(rg_tls_seal(&proxy.tls, text, 10, &proxy.out), 10);
    proxy.out.data[proxy.out.size - 1] ^= 1;
    struct rg_tls_in in = {proxy.out.data, proxy.out.size};
    RG_CHECK_EQ(rg_tunnel_tls_unwrap(&outer, &in, plain, PLAIN_SIZE), -EPROTO);
    struct rg_send_buffer *buffer = rg_send_buffer_borrow(&buffers, false);
    buffer->size = 1;
    RG_CHECK_EQ(rg_tunnel_tls_wrap(&outer, &buffers, buffer), -EPROTO);
    RG_CHECK(outer.wire == NULL);
    rg_send_buffer_return(&buffers, buffer);
    RG_CHECK_EQ(buffers.lent_bytes, 0);
    rg_tunnel_tls_fini(&outer);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_wrapped_arrives_in_order),
        RG_TEST(test_records_cut_anywhere_are_unwrapped),
        RG_TEST(test_the_end_is_told_behind_the_bytes),
        RG_TEST(test_damage_ends_it_and_nothing_is_wrapped_any_more),
    };
    rg_test_pki_init(&pki);
    context = rg_test_client_context(&pki, false);
    server_context = rg_test_server_context(&pki.leaf);
    RG_ASSERT(rg_tls_peer_init(&peer, context, "localhost") == 0);
    RG_ASSERT(rg_tls_loop_init(&loop, 1) == 0);
    rg_test_end_init(&proxy);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_test_end_fini(&proxy);
    rg_tls_loop_fini(&loop);
    rg_send_buffers_fini(&buffers);
    rg_tls_peer_fini(&peer);
    rg_tls_context_close(server_context);
    rg_tls_context_close(context);
    rg_test_pki_fini(&pki);
    return ret;
}
