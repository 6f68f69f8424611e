/* The receiving record layer alone: vectors of RFC 8448, every way to cut the input, every size,
 * and records that no honest peer sends. */
#include "http/tls_record.h"
#include "tests/support/test.h"
#include "tests/support/tls_sealer.h"

/* RFC 8448 section 3, "Simple 1-RTT Handshake": what the server sends after it. */
static const char rfc8448_secret[] =
    "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";
static const char rfc8448_ticket_record[] =
    "17030300de3a6b8f90414a97d6959c3487680de5134a2b240e6cffac116e95d41d6af8f6b580dcf3d11d63c758db"
    "289a015940252f55713e061dc13e078891a38efbcf5753ad8ef170ad3c7353d16d9da773b9ca7f2b9fa1b6c0d4a3"
    "d03f75e09c30ba1e62972ac46f75f7b981be63439b2999ce13064615139891d5e4c5b406f16e3fc181a77ca47584"
    "0025db2f0a77f81b5ab05b94c01346755f69232c86519d86cbeeac87aac347d143f9605d64f650db4d023e70e952"
    "ca49fe5137121c74bc2697687e248746d6df353005f3bce18696129c8153556b3b6c6779b37bf15985684f";
static const char rfc8448_ticket[] =
    "040000c90000001efad6aac502000000b22c035d829359ee5ff7af4ec900000000262a6494dc486d2c8a34cb33fa"
    "90bf1b0070ad3c498883c9367c09a2be785abc55cd226097a3a982117283f82a03a143efd3ff5dd36d64e861be7f"
    "d61d2827db279cce145077d454a3664d4e6da4d29ee03725a6a4dafcd0fc67d2aea70529513e3da2677fa5906c5b"
    "3f7d8f92f228bda40dda721470f9fbf297b5aea617646fac5c03272e970727c621a79141ef5f7de6505e5bfbc388"
    "e93343694093934ae4d3570008002a000400000400";
static const char rfc8448_data_record[] =
    "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a"
    "59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d";
static const char rfc8448_close_record[] = "1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9";

#define WIRE_SIZE RG_KIB(256)

static struct rg_tls_buffers buffers;
static struct rg_tls_record record;
static struct rg_test_sealer sealer;
static uint8_t wire[WIRE_SIZE], plain_text[WIRE_SIZE], dest[WIRE_SIZE];

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++) {
        unsigned value = 0;
        RG_ASSERT(sscanf(hex + 2 * i, "%2x", &value) == 1);
        out[i] = (uint8_t)value;
    }
    return size;
}

/* A record layer of the given suite and a sealer with the same keys. */
static void set_up(uint16_t suite)
{
    struct rg_tls_record_keys keys = {.suite = suite, .secret_size = suite == 0x1302 ? 48 : 32};
    rg_tls_record_fini(&record);
    if (buffers.scratch == NULL) {
        RG_ASSERT(rg_tls_buffers_init(&buffers, 2) == 0);
    }
    RG_CHECK_EQ(buffers.lent_count, 0);
    for (size_t i = 0; i < keys.secret_size; i++) {
        keys.secret[i] = (uint8_t)rg_test_random();
    }
    for (size_t i = 0; i < sizeof(plain_text); i++) {
        plain_text[i] = (uint8_t)rg_test_random();
    }
    RG_CHECK_EQ(rg_tls_record_init(&record, &keys, &buffers), 0);
    rg_test_sealer_init(&sealer, &keys);
}

static size_t seal(uint8_t content, size_t size, size_t padding, uint8_t *out)
{
    return rg_test_seal(
        &sealer,
        &(struct rg_test_record){
            .content = content, .data = plain_text, .size = size, .padding = padding},
        out);
}

static int open_next(struct rg_tls_in *in, size_t room, struct rg_tls_plain *out_plain)
{
    return rg_tls_record_next(&record, in, dest, room, out_plain);
}

/* Expects the record to be refused with the alert. */
static void check_refused(const uint8_t *data, size_t size, int error, uint8_t alert)
{
    struct rg_tls_in in = {data, size};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), error);
    RG_CHECK_EQ(record.alert, alert);
    RG_CHECK(record.error != NULL);
}

static void test_rfc8448_keys_and_records(void)
{
    struct rg_tls_record_keys keys = {.suite = 0x1301, .secret_size = 32};
    uint8_t want[256], iv[RG_TLS_NONCE_SIZE];
    set_up(0x1301);
    rg_tls_record_fini(&record);
    unhex(rfc8448_secret, keys.secret);
    RG_CHECK_EQ(rg_tls_record_init(&record, &keys, &buffers), 0);
    unhex("cf782b88dd83549aadf1e984", iv);
    RG_CHECK_MEM(record.iv, sizeof(record.iv), iv, sizeof(iv));

    size_t size = unhex(rfc8448_ticket_record, wire);
    size += unhex(rfc8448_data_record, wire + size);
    size += unhex(rfc8448_close_record, wire + size);
    struct rg_tls_in in = {wire, size};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK_EQ(plain.content, RG_TLS_CONTENT_HANDSHAKE);
    size_t want_size = unhex(rfc8448_ticket, want);
    RG_CHECK_MEM(plain.data, plain.size, want, want_size);
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK_EQ(plain.content, RG_TLS_CONTENT_DATA);
    for (uint8_t i = 0; i < 50; i++) {
        want[i] = i;
    }
    RG_CHECK_MEM(plain.data, plain.size, want, 50);
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK_EQ(plain.content, RG_TLS_CONTENT_ALERT);
    RG_CHECK_MEM(plain.data, plain.size, "\1\0", 2);
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), -EAGAIN);
    RG_CHECK_EQ(in.size, 0);
}

static void test_every_suite_opens_what_is_sealed(void)
{
    for (uint16_t suite = 0x1301; suite <= 0x1303; suite++) {
        set_up(suite);
        for (int i = 0; i < 20; i++) {
            size_t size = rg_test_random_below(RG_TLS_PLAIN_MAX + 1);
            struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, size, 0, wire)};
            struct rg_tls_plain plain;
            RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
            RG_CHECK_MEM(plain.data, plain.size, plain_text, size);
        }
    }
}

static void test_every_size_with_padding(void)
{
    set_up(0x1301);
    for (size_t size = 0; size <= RG_TLS_PLAIN_MAX; size += size < 300 ? 1 : 61) {
        size_t padding_max = RG_MIN(RG_TLS_PLAIN_MAX - size, 300);
        size_t padding = rg_test_random_below(padding_max + 1);
        struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, size, padding, wire)};
        struct rg_tls_plain plain;
        RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
        RG_CHECK_MEM(plain.data, plain.size, plain_text, size);
    }
    struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, 0, RG_TLS_PLAIN_MAX, wire)};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK_EQ(plain.size, 0);
}

/* Feeds a train of records in pieces of `step` bytes, 0 for random ones. */
static void check_split(const uint8_t *data, size_t size, size_t want_size, size_t step)
{
    size_t done = 0;
    for (size_t at = 0; at < size;) {
        size_t part = step > 0 ? step : 1 + rg_test_random_below(20000);
        part = RG_MIN(part, size - at);
        /* Memory of exactly this size, so that a sanitizer sees a byte read beyond it. */
        uint8_t *piece = malloc(part);
        RG_ASSERT(piece != NULL);
        memcpy(piece, data + at, part);
        struct rg_tls_in in = {piece, part};
        struct rg_tls_plain plain;
        int ret = 0;
        while ((ret = rg_tls_record_next(&record, &in, dest + done, sizeof(dest) - done, &plain)) ==
               0) {
            done += plain.size;
        }
        free(piece);
        RG_CHECK_EQ(ret, -EAGAIN);
        RG_CHECK_EQ(in.size, 0);
        at += part;
    }
    RG_CHECK_EQ(done, want_size);
    RG_CHECK_EQ(buffers.lent_count, 0);
}

static void test_input_split_anywhere(void)
{
    static const size_t sizes[] = {1, 0, 5, 700, RG_TLS_PLAIN_MAX, 3, RG_TLS_PLAIN_MAX - 1};
    for (int round = 0; round < 12; round++) {
        static const size_t steps[] = {1, 4, 5, 6, 21, 22, 16406, 16405, 0};
        set_up(0x1301);
        size_t size = 0, total = 0;
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            size += seal(RG_TLS_CONTENT_DATA, sizes[i], RG_MIN(i, RG_TLS_PLAIN_MAX - sizes[i]),
                         wire + size);
            total += sizes[i];
        }
        check_split(wire, size, total, steps[RG_MIN((size_t)round, RG_ARRAY_LEN(steps) - 1)]);
        size_t at = 0;
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            RG_CHECK_MEM(dest + at, sizes[i], plain_text, sizes[i]);
            at += sizes[i];
        }
    }
}

static void test_room_that_fits_exactly_goes_through_the_scratch(void)
{
    set_up(0x1301);
    struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, 1000, 50, wire)};
    struct rg_tls_plain plain;
    memset(dest, 0xee, sizeof(dest));
    RG_CHECK_EQ(rg_tls_record_room(&record, &in), 1051);
    RG_CHECK_EQ(open_next(&in, 1000, &plain), 0);
    RG_CHECK(plain.data == dest);
    RG_CHECK_MEM(dest, 1000, plain_text, 1000);
    RG_CHECK_EQ(dest[1000], 0xee);
}

static void test_too_little_room_consumes_nothing(void)
{
    set_up(0x1301);
    size_t size = seal(RG_TLS_CONTENT_DATA, 1000, 0, wire);
    struct rg_tls_in in = {wire, size};
    struct rg_tls_plain plain;
    for (size_t room = 0; room < 1000; room += 333) {
        RG_CHECK_EQ(open_next(&in, room, &plain), -ENOSPC);
        RG_CHECK_EQ(in.size, size);
    }
    RG_CHECK_EQ(open_next(&in, 1000, &plain), 0);
    RG_CHECK_MEM(plain.data, plain.size, plain_text, 1000);
}

static void test_a_staged_record_waits_for_room(void)
{
    set_up(0x1301);
    size_t size = seal(RG_TLS_CONTENT_DATA, 1000, 0, wire);
    struct rg_tls_in in = {wire, 100};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, 10, &plain), -EAGAIN);
    RG_CHECK_EQ(buffers.lent_count, 1);
    in = (struct rg_tls_in){wire + 100, size - 100};
    RG_CHECK_EQ(open_next(&in, 10, &plain), -ENOSPC);
    RG_CHECK_EQ(in.size, 0);
    RG_CHECK_EQ(rg_tls_record_room(&record, &in), 1001);
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK_MEM(plain.data, plain.size, plain_text, 1000);
    RG_CHECK_EQ(buffers.lent_count, 0);
}

static void test_every_changed_byte_is_noticed(void)
{
    set_up(0x1301);
    uint8_t copy[128];
    size_t size = seal(RG_TLS_CONTENT_DATA, 40, 3, wire);
    for (size_t at = RG_TLS_HEADER_SIZE; at < size; at++) {
        record.error = NULL;
        memcpy(copy, wire, size);
        copy[at] ^= (uint8_t)(1u << rg_test_random_below(8));
        check_refused(copy, size, -EBADMSG, RG_TLS_ALERT_BAD_RECORD_MAC);
    }
    record.error = NULL;
    struct rg_tls_in in = {wire, size};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
}

static void test_records_out_of_order_or_repeated_are_noticed(void)
{
    set_up(0x1301);
    size_t first = seal(RG_TLS_CONTENT_DATA, 10, 0, wire);
    size_t second = seal(RG_TLS_CONTENT_DATA, 10, 0, wire + first);
    check_refused(wire + first, second, -EBADMSG, RG_TLS_ALERT_BAD_RECORD_MAC);
    record.error = NULL;
    struct rg_tls_in in = {wire, first};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    check_refused(wire, first, -EBADMSG, RG_TLS_ALERT_BAD_RECORD_MAC);
}

static void test_wrong_headers_are_refused(void)
{
    static const struct {
        uint8_t header[5];
        uint8_t alert;
    } cases[] = {
        {{20, 3, 3, 0, 1}, RG_TLS_ALERT_UNEXPECTED_MESSAGE}, /* change_cipher_spec */
        {{21, 3, 3, 0, 2}, RG_TLS_ALERT_UNEXPECTED_MESSAGE}, /* an alert in the clear */
        {{22, 3, 3, 0, 9}, RG_TLS_ALERT_UNEXPECTED_MESSAGE},
        {{'H', 'T', 'T', 'P', '/'}, RG_TLS_ALERT_UNEXPECTED_MESSAGE},
        {{23, 3, 1, 0, 99}, RG_TLS_ALERT_PROTOCOL_VERSION},
        {{23, 2, 3, 0, 99}, RG_TLS_ALERT_PROTOCOL_VERSION},
        {{23, 3, 3, 0x41, 1}, RG_TLS_ALERT_RECORD_OVERFLOW},
        {{23, 3, 3, 0xff, 0xff}, RG_TLS_ALERT_RECORD_OVERFLOW},
        /* 16 KiB and more than the type byte. */
        {{23, 3, 3, 0x40, 18}, RG_TLS_ALERT_RECORD_OVERFLOW},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        set_up(0x1301);
        check_refused(cases[i].header, 5, -EPROTO, cases[i].alert);
        /* A header that comes in two pieces. */
        set_up(0x1301);
        struct rg_tls_in in = {cases[i].header, 3};
        struct rg_tls_plain plain;
        RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), -EAGAIN);
        check_refused(cases[i].header + 3, 2, -EPROTO, cases[i].alert);
    }
}

static void test_records_too_short_for_a_tag_are_refused(void)
{
    for (uint8_t size = 0; size < 17; size++) {
        set_up(0x1301);
        memset(wire, 0, 64);
        memcpy(wire, (uint8_t[]){23, 3, 3, 0, size}, 5);
        check_refused(wire, 5u + size, -EBADMSG, RG_TLS_ALERT_BAD_RECORD_MAC);
    }
}

static void test_wrong_contents_are_refused(void)
{
    static const struct {
        uint8_t content;
        size_t size;
    } cases[] = {{0, 0}, {20, 1}, {24, 1}, {255, 1}, {21, 0}, {22, 0}};
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        set_up(0x1301);
        size_t size = seal(cases[i].content, cases[i].size, 8, wire);
        check_refused(wire, size, -EPROTO, RG_TLS_ALERT_UNEXPECTED_MESSAGE);
    }
}

static void test_a_key_update_changes_keys_and_sequence(void)
{
    for (uint16_t suite = 0x1301; suite <= 0x1303; suite++) {
        set_up(suite);
        for (int generation = 0; generation < 5; generation++) {
            struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, 100, 0, wire)};
            struct rg_tls_plain plain;
            RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
            RG_CHECK_MEM(plain.data, plain.size, plain_text, 100);
            rg_test_sealer_update(&sealer);
            RG_CHECK_EQ(rg_tls_record_update(&record), 0);
        }
    }
}

static void test_a_worn_key_is_noticed_and_then_refused(void)
{
    struct rg_tls_plain plain;
    set_up(0x1301);
    sealer.sequence = record.sequence = RG_TLS_GCM_RECORDS_SOFT - 1;
    RG_CHECK(!rg_tls_record_worn(&record));
    struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, 1, 0, wire)};
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK(rg_tls_record_worn(&record));
    sealer.sequence = record.sequence = RG_TLS_GCM_RECORDS_MAX;
    check_refused(wire, seal(RG_TLS_CONTENT_DATA, 1, 0, wire), -EPROTO,
                  RG_TLS_ALERT_INTERNAL_ERROR);

    /* ChaCha20-Poly1305 has no such limit, but the sequence number must not wrap. */
    set_up(0x1303);
    sealer.sequence = record.sequence = UINT64_MAX - 1;
    in = (struct rg_tls_in){wire, seal(RG_TLS_CONTENT_DATA, 1, 0, wire)};
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), 0);
    RG_CHECK(rg_tls_record_worn(&record));
    check_refused(wire, seal(RG_TLS_CONTENT_DATA, 1, 0, wire), -EPROTO,
                  RG_TLS_ALERT_INTERNAL_ERROR);
}

static void test_unknown_suites_are_left_to_others(void)
{
    struct rg_tls_record other = {0};
    struct rg_tls_record_keys keys = {.suite = 0x1304, .secret_size = 32};
    set_up(0x1301);
    RG_CHECK(!rg_tls_record_knows(0x1304));
    RG_CHECK_EQ(rg_tls_record_init(&other, &keys, &buffers), -ENOTSUP);
    keys = (struct rg_tls_record_keys){.suite = 0x1302, .secret_size = 32};
    RG_CHECK_EQ(rg_tls_record_init(&other, &keys, &buffers), -ENOTSUP);
    rg_tls_record_fini(&other);
}

static void test_buffers_are_lent_last_in_first_out_and_run_out(void)
{
    set_up(0x1301);
    uint8_t *first = rg_tls_buffers_borrow(&buffers), *second = rg_tls_buffers_borrow(&buffers);
    RG_CHECK(first != NULL && second != NULL && first != second);
    RG_CHECK(rg_tls_buffers_borrow(&buffers) == NULL);
    struct rg_tls_in in = {wire, seal(RG_TLS_CONTENT_DATA, 100, 0, wire) - 1};
    struct rg_tls_plain plain;
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), -ENOMEM);
    rg_tls_buffers_return(&buffers, first);
    rg_tls_buffers_return(&buffers, second);
    RG_CHECK(rg_tls_buffers_borrow(&buffers) == second);
    rg_tls_buffers_return(&buffers, second);
    RG_CHECK_EQ(buffers.lent_count, 0);
}

static void test_keys_are_wiped(void)
{
    static const struct rg_tls_record zero;
    set_up(0x1301);
    struct rg_tls_in in = {wire, 3};
    struct rg_tls_plain plain;
    seal(RG_TLS_CONTENT_DATA, 10, 0, wire);
    RG_CHECK_EQ(open_next(&in, sizeof(dest), &plain), -EAGAIN);
    RG_CHECK_EQ(buffers.lent_count, 1);
    rg_tls_record_fini(&record);
    RG_CHECK_EQ(buffers.lent_count, 0);
    RG_CHECK_MEM(&record, sizeof(record), &zero, sizeof(zero));
    rg_tls_record_fini(&record);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_rfc8448_keys_and_records),
        RG_TEST(test_every_suite_opens_what_is_sealed),
        RG_TEST(test_every_size_with_padding),
        RG_TEST(test_input_split_anywhere),
        RG_TEST(test_room_that_fits_exactly_goes_through_the_scratch),
        RG_TEST(test_too_little_room_consumes_nothing),
        RG_TEST(test_a_staged_record_waits_for_room),
        RG_TEST(test_every_changed_byte_is_noticed),
        RG_TEST(test_records_out_of_order_or_repeated_are_noticed),
        RG_TEST(test_wrong_headers_are_refused),
        RG_TEST(test_records_too_short_for_a_tag_are_refused),
        RG_TEST(test_wrong_contents_are_refused),
        RG_TEST(test_a_key_update_changes_keys_and_sequence),
        RG_TEST(test_a_worn_key_is_noticed_and_then_refused),
        RG_TEST(test_unknown_suites_are_left_to_others),
        RG_TEST(test_buffers_are_lent_last_in_first_out_and_run_out),
        RG_TEST(test_keys_are_wiped),
    };
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_tls_record_fini(&record);
    rg_tls_buffers_fini(&buffers);
    return ret;
}
