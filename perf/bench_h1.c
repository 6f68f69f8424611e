/* What it costs to read the head of a media response as Cloud Storage sends it, and to write the
 * head of its request. */
#include "http/h1_decoder.h"
#include "http/h1_encoder.h"
#include "perf/bench.h"

#include <string.h>

static const char response[] =
    "HTTP/1.1 200 OK\r\n"
    "X-GUploader-UploadID: AHmUCY0sbk3s7yD1v8mQy1v7bqj2k0WZb3P0c5Qm8sXoX2n4t8J9xGkqT7dVwQ\r\n"
    "Expires: Fri, 01 Jan 1990 00:00:00 GMT\r\n"
    "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"
    "Cache-Control: no-cache, no-store, max-age=0, must-revalidate\r\n"
    "Last-Modified: Tue, 14 Nov 2023 22:13:19 GMT\r\n"
    "ETag: \"5d41402abc4b2a76b9719d911017c592\"\r\n"
    "x-goog-generation: 1700000000000000\r\n"
    "x-goog-metageneration: 1\r\n"
    "x-goog-stored-content-encoding: identity\r\n"
    "x-goog-stored-content-length: 102400\r\n"
    "Content-Type: application/octet-stream\r\n"
    "x-goog-hash: crc32c=yZRlqg==\r\n"
    "x-goog-hash: md5=XUFAKrxLKna5cZ2REBfFkg==\r\n"
    "x-goog-storage-class: STANDARD\r\n"
    "Accept-Ranges: bytes\r\n"
    "Content-Length: 102400\r\n"
    "Server: UploadServer\r\n"
    "Alt-Svc: h3=\":443\"; ma=2592000,h3-29=\":443\"; ma=2592000\r\n"
    "\r\n";

static void bench_decode(uint64_t rounds)
{
    uint64_t hash = BENCH_HASH_INIT, start_ns = bench_cpu_ns();
    struct rg_h1_head head;
    for (uint64_t i = 0; i < rounds; i++) {
        int size = rg_h1_parse_response(&head, false, response, sizeof(response) - 1, 0);
        RG_ASSERT(size == (int)sizeof(response) - 1);
        const struct rg_h1_slice *sum = rg_h1_find(&head, "x-goog-hash");
        RG_ASSERT(sum != NULL);
    }
    uint64_t spent_ns = bench_cpu_ns() - start_ns;
    hash = bench_hash_u64(hash, head.content_length);
    for (uint32_t i = 0; i < head.header_count; i++) {
        hash = bench_hash(hash, head.headers[i].name.data, head.headers[i].name.size);
        hash = bench_hash(hash, head.headers[i].value.data, head.headers[i].value.size);
    }
    printf("response head, %u fields, %zu bytes: %.0f ns (hash %016" PRIx64 ")\n",
           head.header_count, sizeof(response) - 1, (double)spent_ns / (double)rounds, hash);
}

static void bench_encode(uint64_t rounds)
{
    char data[1024];
    int size = 0;
    uint64_t start_ns = bench_cpu_ns();
    for (uint64_t i = 0; i < rounds; i++) {
        struct rg_h1_encoder encoder;
        rg_h1_encoder_init(&encoder, data, sizeof(data));
        rg_h1_encode_request(&encoder, "GET",
                             "/storage/v1/b/training-data/o/train%2Fshard-00042.bin?alt=media");
        rg_h1_encode_header(&encoder, "Host", "storage.googleapis.com");
        rg_h1_encode_header(&encoder, "User-Agent", "ringest/0.1.0");
        rg_h1_encode_header(&encoder, "Accept-Encoding", "gzip");
        rg_h1_encode_header(&encoder, "Authorization", "Bearer ya29.a0AfB_byC1234567890");
        size = rg_h1_encode_end(&encoder);
        RG_ASSERT(size > 0);
    }
    uint64_t spent_ns = bench_cpu_ns() - start_ns;
    printf("request head, 4 fields, %d bytes: %.0f ns (hash %016" PRIx64 ")\n", size,
           (double)spent_ns / (double)rounds, bench_hash(BENCH_HASH_INIT, data, (size_t)size));
}

int main(int argc, char **argv)
{
    uint64_t rounds = bench_rounds(argc, argv);
    bench_decode(rounds);
    bench_encode(rounds);
    return 0;
}
