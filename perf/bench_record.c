/* How fast received TLS records become plaintext: by our record layer, and by BoringSSL's through
 * SSL_read, of the same connection code. A server of ours seals 256 KiB at a time, as much as a
 * receive buffer holds, and a client opens them into one buffer; only the opening is timed. */
#include "emulator/certificate.h"
#include "http/tls_context.h"
#include "http/tls_traffic.h"
#include "perf/bench.h"

#include <errno.h>
#include <string.h>

#define WIRE_SIZE RG_KIB(256)
#define PLAIN_SIZE RG_KIB(240)

struct end {
    struct rg_tls_loop loop;
    struct rg_tls tls;
    struct rg_tls_out out;
};

static uint8_t wires[2][WIRE_SIZE], plain[PLAIN_SIZE], opened[PLAIN_SIZE + RG_TLS_PLAIN_MAX + 1];

static struct rg_tls_context *open_server(const struct rg_certificate *certificate)
{
    const char *cert = rg_certificate_chain_pem(certificate);
    const char *key = rg_certificate_key_pem(certificate);
    struct rg_tls_context *context;
    char error[256];
    RG_ASSERT(rg_tls_context_open_server(&context,
                                         &(struct rg_tls_server_options){.cert_pem = cert,
                                                                         .cert_size = strlen(cert),
                                                                         .key_pem = key,
                                                                         .key_size = strlen(key)},
                                         error, sizeof(error)) == 0);
    return context;
}

static struct rg_tls_context *open_client(const struct rg_certificate *certificate,
                                          bool boringssl_records)
{
    struct rg_tls_client_options options = {.ca_file = rg_certificate_ca_path(certificate),
                                            .boringssl_records = boringssl_records};
    struct rg_tls_context *context;
    char error[256];
    RG_ASSERT(rg_tls_context_open_client(&context, &options, error, sizeof(error)) == 0);
    return context;
}

/* Carries what the other end has to say to this one. */
static void shake(struct end *end, struct end *other)
{
    struct rg_tls_in in = {other->out.data, other->out.size};
    int ret = rg_tls_established(&end->tls) ? 0 : rg_tls_handshake(&end->tls, &in, &end->out);
    RG_ASSERT(ret == 0 || ret == -EAGAIN);
    if (rg_tls_established(&end->tls) && in.size > 0) {
        RG_ASSERT(rg_tls_open(&end->tls, &in, opened, sizeof(opened), &end->out) == 0);
    }
    other->out.size = 0;
}

static void connect_ends(struct end *client, struct end *server)
{
    for (int i = 0; i < 8; i++) {
        shake(client, server);
        shake(server, client);
    }
    RG_ASSERT(rg_tls_established(&client->tls) && rg_tls_established(&server->tls));
}

static uint64_t open_wire(struct end *client, struct rg_tls_in in)
{
    size_t size = 0;
    ssize_t ret;
    uint64_t start_ns = bench_cpu_ns();
    while ((ret = rg_tls_open(&client->tls, &in, opened + size, sizeof(opened) - size,
                              &client->out)) > 0) {
        size += (size_t)ret;
    }
    uint64_t spent_ns = bench_cpu_ns() - start_ns;
    RG_ASSERT(ret == 0 && size == PLAIN_SIZE);
    return spent_ns;
}

static void bench(const struct rg_certificate *certificate, bool boringssl_records, uint64_t rounds)
{
    struct rg_tls_context *client_context = open_client(certificate, boringssl_records);
    struct rg_tls_context *server_context = open_server(certificate);
    struct rg_tls_peer peer;
    struct end client = {.out = {.data = wires[0], .capacity = WIRE_SIZE}};
    struct end server = {.out = {.data = wires[1], .capacity = WIRE_SIZE}};
    RG_ASSERT(rg_tls_loop_init(&client.loop, 1) == 0);
    RG_ASSERT(rg_tls_loop_init(&server.loop, 1) == 0);
    RG_ASSERT(rg_tls_peer_init(&peer, client_context, "localhost") == 0);
    RG_ASSERT(rg_tls_init_client(&client.tls, &client.loop, &peer) == 0);
    RG_ASSERT(rg_tls_init_server(&server.tls, &server.loop, server_context) == 0);
    connect_ends(&client, &server);

    uint64_t spent_ns = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        plain[0] = (uint8_t)i;
        server.out.size = 0;
        RG_ASSERT(rg_tls_seal(&server.tls, plain, sizeof(plain), &server.out) == PLAIN_SIZE);
        spent_ns += open_wire(&client, (struct rg_tls_in){server.out.data, server.out.size});
    }
    RG_ASSERT(memcmp(opened, plain, sizeof(plain)) == 0);
    printf("%-9s %6.2f GB/s, %s %s (hash %016" PRIx64 ")\n",
           boringssl_records ? "SSL_read" : "ours",
           (double)(rounds * PLAIN_SIZE) / (double)spent_ns, rg_tls_version(&client.tls),
           rg_tls_cipher(&client.tls), bench_hash(BENCH_HASH_INIT, opened, PLAIN_SIZE));

    rg_tls_fini(&client.tls);
    rg_tls_fini(&server.tls);
    rg_tls_peer_fini(&peer);
    rg_tls_loop_fini(&client.loop);
    rg_tls_loop_fini(&server.loop);
    rg_tls_context_close(client_context);
    rg_tls_context_close(server_context);
}

int main(int argc, char **argv)
{
    uint64_t rounds = bench_rounds(argc, argv);
    char error[256];
    struct rg_certificate *certificate;
    if (rg_certificate_open(&certificate, NULL, NULL, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], error);
        return 1;
    }
    for (size_t i = 0; i < sizeof(plain); i++) {
        plain[i] = (uint8_t)(i * 2654435761u >> 24);
    }
    bench(certificate, false, rounds);
    bench(certificate, true, rounds);
    rg_certificate_close(certificate);
    return 0;
}
