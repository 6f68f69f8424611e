/* Feeds a TLS connection whose keys are known, so that the fuzzer gets past the encryption: the
 * input is a program that says which records the peer sends, how they are damaged, and how the
 * bytes are cut.
 *
 *     input := suite(1) step*          step := operation(1) argument(1)
 *
 * A step seals a record and puts it on the wire, damages the wire, or hands a part of it over.
 * Handshake messages and data are taken from a table and from the input itself. */
#include "http/tls_traffic.h"
#include "tests/support/tls_ends.h"
#include "tests/support/tls_sealer.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

#define WIRE_SIZE RG_KIB(256)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct rg_test_end end;
static struct rg_test_sealer sealer;
static uint8_t wire[WIRE_SIZE], dest[RG_KIB(64)], filler[RG_TLS_PLAIN_MAX];
static size_t wire_size;

/* Made once: what a connection needs that is not under test. */
static struct {
    struct rg_test_pki pki;
    struct rg_tls_context *context;
    struct rg_tls_peer peer;
    SSL_CTX *raw;
    bool made;
} fixture;

static void make_fixture(void)
{
    if (fixture.made) {
        return;
    }
    rg_test_pki_init(&fixture.pki);
    fixture.context = rg_test_client_context(&fixture.pki, false);
    RG_ASSERT(rg_tls_peer_init(&fixture.peer, fixture.context, "localhost") == 0);
    fixture.raw = rg_test_raw_context(&fixture.pki.leaf);
    rg_test_end_init(&end);
    unlink(fixture.pki.ca_path);
    fixture.made = true;
}

/* One real handshake, and then its keys replaced by fixed ones: a run depends on its input only.
 * The connection lives as long as the peer does as it should. */
static void connect_again(uint16_t suite)
{
    struct rg_tls_record_keys keys = {.suite = suite, .secret_size = suite == 0x1302 ? 48 : 32};
    if (end.tls.ssl == NULL || end.tls.failure != RG_TLS_FAILURE_NONE ||
        end.tls.reading == RG_TLS_READING_ENDED) {
        rg_test_end_reset(&end);
        SSL *raw = rg_test_raw_server(fixture.raw);
        RG_ASSERT(rg_tls_init_client(&end.tls, &end.loop, &fixture.peer) == 0);
        RG_ASSERT(rg_test_shake_raw(&end, raw, 0, NULL) == 0);
        SSL_free(raw);
    }
    if (end.tls.message != NULL) {
        rg_tls_buffers_return(&end.loop.buffers, end.tls.message);
        end.tls.message = NULL;
        end.tls.message_size = 0;
    }
    end.tls.empty_count = end.tls.key_update_count = end.tls.warning_count = 0;
    end.tls.ticket_count = 0;
    end.out.size = 0;
    memset(keys.secret, 7, sizeof(keys.secret));
    rg_tls_record_fini(&end.tls.record);
    RG_ASSERT(rg_tls_record_init(&end.tls.record, &keys, &end.loop.buffers) == 0);
    rg_test_sealer_init(&sealer, &keys);
    wire_size = 0;
}

static void put(uint8_t content, const void *data, size_t size, size_t padding)
{
    if (wire_size + size + padding + 64 > sizeof(wire)) {
        return;
    }
    wire_size +=
        rg_test_seal(&sealer,
                     &(struct rg_test_record){
                         .content = content, .data = data, .size = size, .padding = padding},
                     wire + wire_size);
}

/* Hands the first `size` bytes of the wire over, in memory of exactly that size. False once the
 * connection has ended. */
static bool hand_over(size_t size, size_t room)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    RG_ASSERT(copy != NULL);
    memcpy(copy, wire, size);
    struct rg_tls_in in = {copy, size};
    ssize_t ret = 0;
    do {
        ret = rg_tls_open(&end.tls, &in, dest, room, &end.out);
        RG_ASSERT(ret <= (ssize_t)room);
        if (ret == -ENOSPC) {
            RG_ASSERT(room < RG_TLS_PLAIN_MAX);
            room = RG_TLS_PLAIN_MAX;
            ret = 1;
        }
        end.out.size = 0;
    } while (ret > 0);
    RG_ASSERT(ret != 0 || in.size == 0);
    RG_ASSERT(ret == 0 || ret == -ENODATA || ret == -EPROTO);
    RG_ASSERT((ret == -EPROTO) == (end.tls.failure != RG_TLS_FAILURE_NONE));
    free(copy);
    memmove(wire, wire + size, wire_size - size);
    wire_size -= size;
    return ret == 0;
}

/* One step. `rest` is what follows in the input, for records whose content it is. */
static bool step(uint8_t operation, uint8_t argument, const uint8_t *rest, size_t rest_size)
{
    size_t part = RG_MIN(rest_size, argument);
    switch (operation % 12) {
    case 0:
        put(RG_TLS_CONTENT_DATA, filler, (size_t)argument * argument / 4, 0);
        return true;
    case 1:
        put(RG_TLS_CONTENT_DATA, filler, argument, (size_t)argument * 64 % 16000);
        return true;
    case 2:
        put(RG_TLS_CONTENT_HANDSHAKE, rest, part, 0);
        return true;
    case 3:
        put(RG_TLS_CONTENT_ALERT, rest, part, 0);
        return true;
    case 4:
        put(argument, rest, RG_MIN(rest_size, 20), 1);
        return true;
    case 5:
        put(RG_TLS_CONTENT_HANDSHAKE, (uint8_t[]){24, 0, 0, 1, argument % 2}, 5, 0);
        rg_test_sealer_update(&sealer);
        return true;
    case 6:
        if (wire_size > 0) {
            wire[argument % wire_size] ^= (uint8_t)(1u << (operation / 12 % 8));
        }
        return true;
    case 7:
        if (wire_size + part <= sizeof(wire)) {
            memcpy(wire + wire_size, rest, part);
            wire_size += part;
        }
        return true;
    case 8:
        put(RG_TLS_CONTENT_DATA, filler, RG_TLS_PLAIN_MAX, 0);
        return true;
    case 9:
        return hand_over(RG_MIN(wire_size, (size_t)argument), sizeof(dest));
    case 10:
        return hand_over(wire_size, (size_t)argument * 80);
    default:
        return hand_over(wire_size, sizeof(dest));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_fixture();
    if (size == 0) {
        return 0;
    }
    connect_again((uint16_t)(0x1301 + data[0] % 3));
    bool open = true;
    for (size_t at = 1; open && at + 2 <= size; at += 2) {
        open = step(data[at], data[at + 1], data + at + 2, size - at - 2);
    }
    if (open) {
        hand_over(wire_size, sizeof(dest));
    }
    return 0;
}
