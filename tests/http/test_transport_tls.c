/* TLS at the level of the transport, with full buffers: what the record layer has to say must find
 * its way between what the owner sends, in order and under the right key. The peer is BoringSSL's
 * own record layer, and OpenSSL's program. */
#include "tests/support/loop.h"
#include "tests/support/scripted_server.h"
#include "tests/support/test.h"
#include "tests/support/tls_stream.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rg_test_pki pki;
static char cert_path[RG_TEST_PATH_SIZE], key_path[RG_TEST_PATH_SIZE];

/* Each of what a transport can be, with the peer that it has. */
struct variety {
    const char *name;
    bool is_server, boringssl_records;
    uint16_t version;
};

static const struct variety varieties[] = {
    {"client", false, false, 0},
    {"server", true, false, 0},
    {"client with BoringSSL's records", false, true, 0},
    {"server with BoringSSL's records", true, true, 0},
    {"client of TLS 1.2", false, false, TLS1_2_VERSION},
    {"server of TLS 1.2", true, false, TLS1_2_VERSION},
};

static bool has_key_updates(const struct variety *variety)
{
    return variety->version != TLS1_2_VERSION;
}

static struct rg_test_stream *stream_open(const struct variety *variety, int buffers)
{
    struct rg_test_stream *stream = calloc(1, sizeof(*stream));
    printf("  %s\n", variety->name);
    stream->pki = &pki;
    stream->is_server = variety->is_server;
    stream->boringssl_records = variety->boringssl_records;
    stream->version = variety->version;
    stream->buffers = buffers;
    rg_test_stream_open(stream);
    RG_TEST_TURN_UNTIL(stream, stream->ready && SSL_is_init_finished(stream->raw));
    return stream;
}

static void stream_close(struct rg_test_stream *stream)
{
    RG_CHECK(!stream->differs);
    rg_test_stream_close(stream);
    free(stream);
}

/* Everything that was sent has come, on both sides, and neither has failed. */
static void check_all_came(struct rg_test_stream *stream)
{
    RG_TEST_TURN_UNTIL(stream, stream->raw_received == stream->send_until || stream->ended ||
                                   stream->raw_error[0] != '\0');
    RG_CHECK_STR(stream->raw_error, "");
    RG_CHECK_STR(stream->text, "");
    RG_TEST_TURN_UNTIL(stream, stream->received == stream->raw_sent || stream->ended);
    RG_CHECK(!stream->ended);
    RG_CHECK_EQ(stream->received, stream->raw_sent);
}

static void test_bytes_in_pieces_of_every_size(void)
{
    static const size_t pieces[] = {1, 7, 100, 20000};
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], 0);
        for (size_t n = 0; n < RG_ARRAY_LEN(pieces); n++) {
            stream->piece_max = pieces[n];
            rg_test_raw_write(stream, 200 * RG_MIN(pieces[n], (size_t)1000));
            rg_test_stream_send(stream, stream->send_until + 300000);
            check_all_came(stream);
        }
        stream_close(stream);
    }
}

static void fill_exactly(struct rg_test_stream *stream)
{
    RG_ASSERT(stream->full && rg_transport_sending(&stream->transport));
}

/* Ours sends until nothing takes any more: not the send buffer, not the sockets. */
static void fill_up(struct rg_test_stream *stream, uint64_t size)
{
    stream->raw_deaf = true;
    rg_test_stream_send(stream, stream->send_until + size);
    uint64_t before;
    do {
        before = stream->sent;
        rg_test_loop_turn(stream->loop);
    } while (stream->sent != before || !stream->full);
    rg_test_stream_call(stream, fill_exactly);
}

static void ask_for_new_keys(struct rg_test_stream *stream, int count)
{
    for (int i = 0; i < count; i++) {
        RG_CHECK_EQ(SSL_key_update(stream->raw, SSL_KEY_UPDATE_REQUESTED), 1);
        RG_CHECK_EQ(SSL_write(stream->raw, "", 0), 0);
    }
}

/* A peer that asks for a new key while nothing can be sent gets all bytes, and ours under the new
 * key behind those under the old one. */
static void test_a_new_key_is_asked_for_while_the_buffer_is_full(void)
{
    static const int asked[] = {1, 2, 30};
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties) * RG_ARRAY_LEN(asked); i++) {
        const struct variety *variety = &varieties[i / RG_ARRAY_LEN(asked)];
        if (!has_key_updates(variety)) {
            continue;
        }
        struct rg_test_stream *stream = stream_open(variety, RG_KIB(16));
        fill_up(stream, RG_MIB(1));
        ask_for_new_keys(stream, asked[i % RG_ARRAY_LEN(asked)]);
        rg_test_raw_write(stream, 1000);
        RG_TEST_TURN_UNTIL(stream, stream->received == stream->raw_sent || stream->ended);
        stream->raw_deaf = false;
        check_all_came(stream);
        rg_test_stream_send(stream, stream->send_until + 100);
        check_all_came(stream);
        stream_close(stream);
    }
}

static void send_no_more(struct rg_test_stream *stream)
{
    stream->send_until = stream->sent;
}

/* What BoringSSL holds itself goes out with the next record. */
static void test_an_answer_does_not_wait_for_more_to_be_sent(void)
{
    for (size_t i = 0; i < 2; i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], RG_KIB(16));
        fill_up(stream, RG_MIB(1));
        rg_test_stream_call(stream, send_no_more);
        ask_for_new_keys(stream, 1);
        RG_TEST_TURN_UNTIL(stream, stream->wire_size == 0);
        stream->raw_deaf = false;
        check_all_came(stream);
        RG_TEST_TURN_UNTIL(stream, SSL_get_read_sequence(stream->raw) == 0);
        stream_close(stream);
    }
}

/* Both sides send, read in fits and starts, and change their keys with and without asking. */
static void test_keys_change_in_both_directions_under_load(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        if (!has_key_updates(&varieties[i])) {
            continue;
        }
        struct rg_test_stream *stream = stream_open(&varieties[i], RG_KIB(16));
        stream->piece_max = 5000;
        for (unsigned n = 0; n < 300; n++) {
            int asks = rg_test_random_below(2) == 0 ? SSL_KEY_UPDATE_REQUESTED
                                                    : SSL_KEY_UPDATE_NOT_REQUESTED;
            RG_CHECK_EQ(SSL_key_update(stream->raw, asks), 1);
            rg_test_raw_write(stream, 1 + rg_test_random_below(20000));
            rg_test_stream_send(stream, stream->send_until + rg_test_random_below(60000));
            stream->raw_deaf = rg_test_random_below(3) == 0;
            rg_test_raw_turn(stream);
        }
        stream->raw_deaf = false;
        check_all_came(stream);
        stream_close(stream);
    }
}

/* An upload hears nothing but the peer's new keys, for as long as it takes. */
static void test_an_upload_outlasts_any_number_of_new_keys(void)
{
    for (size_t i = 0; i < 2; i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], 0);
        for (int n = 0; n < 3 * RG_TLS_KEY_UPDATES_MAX; n++) {
            rg_test_stream_send(stream, stream->send_until + 2 * RG_TLS_KEY_UPDATE_BYTES);
            check_all_came(stream);
            ask_for_new_keys(stream, 1);
            rg_test_raw_turn(stream);
        }
        rg_test_raw_write(stream, 1);
        check_all_came(stream);
        stream_close(stream);
    }
}

/* Before a server has sent anything its tickets wait. They go out in front of the answer to a key
 * update, and all of them are more than fits beside what is read. */
static void test_a_new_key_is_asked_for_before_many_tickets_were_sent(void)
{
    for (unsigned i = 0; i < 2; i++) {
        struct rg_test_stream *stream = calloc(1, sizeof(*stream));
        stream->pki = &pki;
        stream->is_server = true;
        stream->boringssl_records = i != 0;
        stream->tickets = 16;
        rg_test_stream_open(stream);
        RG_TEST_TURN_UNTIL(stream, stream->ready && SSL_is_init_finished(stream->raw));
        ask_for_new_keys(stream, 1);
        rg_test_raw_write(stream, 1000);
        RG_TEST_TURN_UNTIL(stream, stream->received == stream->raw_sent || stream->ended);
        rg_test_stream_send(stream, 1000);
        check_all_came(stream);
        stream_close(stream);
    }
}

static void test_a_flood_of_new_keys_ends_the_connection(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        if (!has_key_updates(&varieties[i])) {
            continue;
        }
        struct rg_test_stream *stream = stream_open(&varieties[i], RG_KIB(16));
        fill_up(stream, RG_MIB(1));
        ask_for_new_keys(stream, RG_TLS_KEY_UPDATES_MAX + 1);
        RG_TEST_TURN_UNTIL(stream, stream->ended);
        RG_CHECK_EQ(stream->failure.status, RG_STATUS_CONNECTION_LOST);
        RG_CHECK(strcasestr(stream->text, "key") != NULL);
        stream_close(stream);
    }
}

static void test_paused_while_the_peer_asks_for_new_keys(void)
{
    struct rg_test_stream *stream = stream_open(&varieties[0], RG_KIB(16));
    stream->paused = true;
    for (unsigned n = 0; n < 20; n++) {
        RG_CHECK_EQ(SSL_key_update(stream->raw, SSL_KEY_UPDATE_REQUESTED), 1);
        rg_test_raw_write(stream, 3000);
    }
    rg_test_stream_send(stream, RG_MIB(1));
    RG_TEST_TURN_UNTIL(stream, stream->raw_received == RG_MIB(1));
    RG_CHECK_EQ(stream->received, 0);
    rg_test_stream_resume(stream);
    check_all_came(stream);
    stream_close(stream);
}

static void test_data_before_an_alert_is_delivered(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], 0);
        stream->piece_max = 50;
        rg_test_raw_write(stream, 30000);
        SSL_send_fatal_alert(stream->raw, SSL_AD_INTERNAL_ERROR);
        RG_TEST_TURN_UNTIL(stream, stream->ended);
        RG_CHECK_EQ(stream->received, 30000);
        RG_CHECK_EQ(stream->failure.status, RG_STATUS_CONNECTION_LOST);
        RG_CHECK(strstr(stream->text, "internal error") != NULL);
        stream_close(stream);
    }
}

static void test_the_end_that_the_peer_announces_is_orderly(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], 0);
        rg_test_raw_write(stream, 20000);
        SSL_shutdown(stream->raw);
        RG_TEST_TURN_UNTIL(stream, stream->ended);
        RG_CHECK_EQ(stream->received, 20000);
        RG_CHECK_EQ(stream->failure.status, RG_STATUS_OK);
        stream_close(stream);
    }
}

static void test_an_end_that_nobody_announced_is_a_loss(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], 0);
        rg_test_raw_write(stream, 20000);
        RG_TEST_TURN_UNTIL(stream, stream->received == 20000);
        shutdown(stream->fd, SHUT_WR);
        RG_TEST_TURN_UNTIL(stream, stream->ended);
        RG_CHECK_EQ(stream->failure.status, RG_STATUS_CONNECTION_LOST);
        RG_CHECK(strstr(stream->text, "close_notify") != NULL);
        stream_close(stream);
    }
}

static void test_our_end_is_announced_behind_all_bytes(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], 0);
        rg_test_stream_send(stream, 500000);
        check_all_came(stream);
        rg_test_stream_end(stream);
        RG_TEST_TURN_UNTIL(stream, stream->raw_ended && stream->raw_finished);
        RG_CHECK_STR(stream->raw_error, "");
        RG_AWAIT(stream->closed);
        stream_close(stream);
    }
}

/* The peer says that it will send no more, in the middle of what we send. */
static void test_an_end_amid_an_upload(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(varieties); i++) {
        struct rg_test_stream *stream = stream_open(&varieties[i], RG_KIB(16));
        fill_up(stream, RG_MIB(1));
        SSL_shutdown(stream->raw);
        RG_TEST_TURN_UNTIL(stream, stream->ended);
        RG_CHECK_EQ(stream->failure.status, RG_STATUS_OK);
        stream_close(stream);
    }
}

static void test_tickets_come_between_records(void)
{
    struct rg_test_stream *stream = stream_open(&varieties[0], 0);
    stream->piece_max = 3;
    rg_test_raw_write(stream, 5000);
    check_all_came(stream);
    RG_CHECK(stream->transport.tls.ticket_count > 0);
    RG_CHECK_EQ(stream->peer_name.session_count, stream->transport.tls.ticket_count);
    stream_close(stream);
}

/* A server whose certificate is longer than a send buffer has to wait before it can go on, and
 * keeps what it has received by then: the beginning of a record that means nothing, which RFC 8446
 * allows behind a ClientHello (section 5). */
static void test_a_handshake_that_waits_for_room_keeps_its_input(void)
{
    static const uint8_t change_cipher_spec[] = {20, 3, 3, 0, 1, 1};
    enum { CUT = 3, NAMES = 2000 };
    char *names = calloc(NAMES, 32);
    size_t size = (size_t)sprintf(names, "DNS:localhost");
    for (int i = 0; i < NAMES; i++) {
        size += (size_t)sprintf(names + size, ",DNS:name-%04d.example", i);
    }
    struct rg_test_certificate leaf;
    rg_test_certificate_make(&leaf, &(struct rg_test_certificate_spec){
                                        .common_name = "x", .alt_names = names, .issuer = &pki.ca});
    struct rg_test_stream stream = {
        .pki = &pki, .leaf = &leaf, .is_server = true, .buffers = RG_KIB(8)};
    rg_test_stream_open(&stream);
    RG_CHECK_EQ(SSL_do_handshake(stream.raw), -1);
    stream.wire_size = rg_test_from_raw(stream.raw, stream.wire, stream.wire_room);
    memcpy(stream.wire + stream.wire_size, change_cipher_spec, CUT);
    stream.wire_size += CUT;
    stream.raw_deaf = true;
    /* It has begun to answer. */
    char byte;
    RG_TEST_TURN_UNTIL(&stream, recv(stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
    memcpy(stream.wire, change_cipher_spec + CUT, sizeof(change_cipher_spec) - CUT);
    stream.wire_size = sizeof(change_cipher_spec) - CUT;
    RG_TEST_TURN_UNTIL(&stream, stream.wire_size == 0);
    stream.raw_deaf = false;
    RG_TEST_TURN_UNTIL(&stream, stream.ready || stream.ended);
    RG_CHECK_STR(stream.text, "");
    rg_test_stream_send(&stream, 100000);
    check_all_came(&stream);
    rg_test_stream_close(&stream);
    rg_test_certificate_free(&leaf);
    free(names);
}

/* OpenSSL's program, with a pipe to each end of it. */
struct program {
    pid_t pid;
    int in, out;
    uint64_t got; /* bytes of ours that it has printed */
    char text[RG_KIB(16)];
    size_t text_size;
};

static void program_start(struct program *program, const char *const *args)
{
    int in[2], out[2];
    RG_CHECK_EQ(pipe2(in, O_CLOEXEC), 0);
    RG_CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
    program->pid = fork();
    RG_CHECK(program->pid >= 0);
    if (program->pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        execvp("openssl", (char *const *)args);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    program->in = in[1];
    program->out = out[0];
    fcntl(program->out, F_SETFL, O_NONBLOCK);
}

static void program_stop(struct program *program)
{
    kill(program->pid, SIGKILL);
    waitpid(program->pid, NULL, 0);
    close(program->in);
    close(program->out);
}

/* Besides text it prints the bytes of ours, which are told from that by their highest bit. */
#define UPLOAD_BITS 0x80

/* Reads what it has printed, and checks the bytes of ours in it. Text is kept as far as it fits. */
static void program_read(struct program *program)
{
    uint8_t bytes[RG_KIB(64)];
    ssize_t size = read(program->out, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < size; i++) {
        if ((bytes[i] & UPLOAD_BITS) != 0) {
            RG_CHECK_EQ(bytes[i], rg_script_byte(program->got) | UPLOAD_BITS);
            program->got++;
        } else if (program->text_size + 1 < sizeof(program->text)) {
            program->text[program->text_size++] = (char)bytes[i];
        }
    }
}

static void program_command(const struct program *program, const char *command)
{
    RG_CHECK_EQ(write(program->in, command, strlen(command)), strlen(command));
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(bind(fd, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

#define AWAIT_PROGRAM(program, condition)                                                          \
    RG_AWAIT((program_read(program), (condition)) || waitpid((program)->pid, NULL, WNOHANG) != 0)

/* A stream whose peer is the program, which has begun to read commands. */
struct openssl {
    struct program program;
    struct rg_test_stream stream;
};

static void openssl_serve(struct openssl *openssl, const char *version)
{
    char port[8];
    openssl->stream.port = free_port();
    snprintf(port, sizeof(port), "%u", openssl->stream.port);
    const char *const args[] = {"openssl", "s_server", "-accept", port,    "-cert",
                                cert_path, "-key",     key_path,  version, NULL};
    program_start(&openssl->program, args);
    AWAIT_PROGRAM(&openssl->program, strstr(openssl->program.text, "ACCEPT") != NULL);
    rg_test_stream_open(&openssl->stream);
}

static void openssl_connect(struct openssl *openssl, const char *version)
{
    char where[32];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(bind(listener, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(listen(listener, 1), 0);
    RG_CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    snprintf(where, sizeof(where), "127.0.0.1:%u", ntohs(address.sin_port));
    const char *const args[] = {"openssl",   "s_client",    "-connect",  where,   "-CAfile",
                                pki.ca_path, "-servername", "localhost", version, NULL};
    program_start(&openssl->program, args);
    openssl->stream.accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    RG_CHECK(openssl->stream.accepted >= 0);
    close(listener);
    rg_test_stream_open(&openssl->stream);
}

static struct openssl *openssl_open(bool is_server, const char *version)
{
    if (system("openssl version >/dev/null 2>&1") != 0) {
        rg_test_skip("there is no openssl program here");
    }
    struct openssl *openssl = calloc(1, sizeof(*openssl));
    openssl->stream.pki = &pki;
    openssl->stream.is_server = is_server;
    openssl->stream.bits = UPLOAD_BITS;
    openssl->stream.buffers = RG_KIB(16);
    if (is_server) {
        openssl_connect(openssl, version);
    } else {
        openssl_serve(openssl, version);
    }
    AWAIT_PROGRAM(&openssl->program, openssl->stream.ready);
    return openssl;
}

static void openssl_close(struct openssl *openssl)
{
    rg_test_stream_close(&openssl->stream);
    program_stop(&openssl->program);
    free(openssl);
}

/* It has stopped, so that nothing can be sent, when it is told to ask for a new key; and is told so
 * again and again while it reads. */
static void test_openssl_asks_for_new_keys_amid_an_upload(void)
{
    for (int is_server = 0; is_server < 2; is_server++) {
        struct openssl *openssl = openssl_open(is_server, "-tls1_3");
        struct rg_test_stream *stream = &openssl->stream;
        struct program *program = &openssl->program;
        for (unsigned round = 0; round < 4; round++) {
            kill(program->pid, SIGSTOP);
            fill_up(stream, RG_KIB(768));
            program_command(program, "K\n");
            kill(program->pid, SIGCONT);
            AWAIT_PROGRAM(program,
                          program->got + RG_KIB(384) >= stream->send_until || stream->ended);
            program_command(program, round % 2 == 0 ? "k\n" : "K\n");
            AWAIT_PROGRAM(program, program->got == stream->send_until || stream->ended);
            RG_CHECK_STR(stream->text, "");
            RG_CHECK_EQ(program->got, stream->send_until);
        }
        program_command(program, "plain\n");
        AWAIT_PROGRAM(program, stream->received > 0);
        openssl_close(openssl);
    }
}

static void test_renegotiation_is_refused(void)
{
    for (int is_server = 0; is_server < 2; is_server++) {
        struct openssl *openssl = openssl_open(is_server, "-tls1_2");
        rg_test_stream_send(&openssl->stream, 100000);
        AWAIT_PROGRAM(&openssl->program, openssl->program.got == 100000);
        program_command(&openssl->program, "R\n");
        AWAIT_PROGRAM(&openssl->program, openssl->stream.ended);
        RG_CHECK_EQ(openssl->stream.failure.status, RG_STATUS_CONNECTION_LOST);
        RG_CHECK(strcasestr(openssl->stream.text, "renegotiation") != NULL);
        openssl_close(openssl);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bytes_in_pieces_of_every_size),
        RG_TEST(test_a_new_key_is_asked_for_while_the_buffer_is_full),
        RG_TEST(test_an_answer_does_not_wait_for_more_to_be_sent),
        RG_TEST(test_keys_change_in_both_directions_under_load),
        RG_TEST(test_an_upload_outlasts_any_number_of_new_keys),
        RG_TEST(test_a_new_key_is_asked_for_before_many_tickets_were_sent),
        RG_TEST(test_a_flood_of_new_keys_ends_the_connection),
        RG_TEST(test_paused_while_the_peer_asks_for_new_keys),
        RG_TEST(test_data_before_an_alert_is_delivered),
        RG_TEST(test_the_end_that_the_peer_announces_is_orderly),
        RG_TEST(test_an_end_that_nobody_announced_is_a_loss),
        RG_TEST(test_our_end_is_announced_behind_all_bytes),
        RG_TEST(test_an_end_amid_an_upload),
        RG_TEST(test_tickets_come_between_records),
        RG_TEST(test_a_handshake_that_waits_for_room_keeps_its_input),
        RG_TEST(test_openssl_asks_for_new_keys_amid_an_upload),
        RG_TEST(test_renegotiation_is_refused),
    };
    rg_test_pki_init(&pki);
    rg_test_file_make(pki.leaf.cert_pem, cert_path);
    rg_test_file_make(pki.leaf.key_pem, key_path);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    unlink(cert_path);
    unlink(key_path);
    rg_test_pki_fini(&pki);
    return ret;
}
