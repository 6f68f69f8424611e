/* What floor.c and its ways of receiving share. A way waits for connections and hands what arrived
 * to floor_take, or lets floor_receive do both by a system call. */
#ifndef RG_PERF_FLOOR_H
#define RG_PERF_FLOOR_H

#include <openssl/aead.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOOR_HOT_SIZE (256u << 10)
/* A whole record of TLS. */
#define FLOOR_HEAD_ROOM (5 + 16384 + 256)
#define FLOOR_SECRET_SIZE 32

struct floor_conn {
    int fd;
    SSL *ssl;          /* NULL on a plain connection, as is all that follows `received` */
    uint64_t received; /* of the answer, head included */
    EVP_AEAD_CTX aead;
    uint8_t secret[FLOOR_SECRET_SIZE];
    uint8_t iv[12];
    uint64_t sequence;
    uint8_t *slab; /* NULL before the first bytes of an answer */
    uint8_t *cut;  /* the beginning of a record whose end has not arrived, or NULL */
    size_t cut_size;
    uint32_t crc;
};

struct floor_way {
    const char *name;
    void (*open)(struct floor_conn *conns, uint32_t count);
    void (*pass)(void); /* waits, and takes what arrived */
    void (*close)(void);
};

/* Ends the program for an unknown name, with the known ones. */
const struct floor_way *floor_way_find(const char *name);

/* Bytes of an answer. A request follows at once where it is complete. `has_room`: FLOOR_HEAD_ROOM
 * bytes before them may be overwritten, so that what an earlier receive left of a record is copied
 * there, and not the rest of the record to it. */
void floor_take(struct floor_conn *conn, uint8_t *data, size_t size, bool has_room);
/* Receives into the one hot buffer. True when that was filled, so that there is probably more. */
bool floor_receive(struct floor_conn *conn);

__attribute__((noreturn, format(printf, 1, 2))) void floor_die(const char *format, ...);

#endif
