/* A peer, and no service: it does what a table of steps says, however wrong that is in TLS, in HTTP
 * or in what an answer holds, for tests of how clients of ours take it. It knows nothing of
 * objects; who needs a service that fails takes the emulator with fault rules. Sockets block and
 * each connection has a thread, so that nothing is shared with the code under test; TLS is
 * BoringSSL's own, straight over the socket.
 *
 * The n-th connection that is accepted follows the n-th script, later ones the last. A connection
 * whose script has ended is closed in an orderly way. One that
 * begins with CUT, RESET, ALERT, CLEAR or DEAF never speaks TLS. */
#ifndef RG_TESTS_SUPPORT_SCRIPTED_SERVER_H
#define RG_TESTS_SUPPORT_SCRIPTED_SERVER_H

#include "tests/support/certificates.h"

#include <arpa/inet.h>

#define RG_SCRIPT_CONNECTIONS_MAX 512
#define RG_SCRIPT_REQUESTS_MAX 4096
#define RG_SCRIPT_BODY_KEPT_MAX 65536
#define RG_SCRIPT_GATES_MAX 32

enum rg_step_kind {
    RG_STEP_END =
        0,        /* closes: close_notify where there is TLS, FIN, and waits for the peer's end */
    RG_STEP_READ, /* waits for a whole request, with its body; the connection ends when none comes
                   */
    RG_STEP_READ_HEAD,   /* without its body */
    RG_STEP_SEND,        /* the text */
    RG_STEP_SEND_BYTES,  /* `size` bytes of rg_script_byte from `offset` on */
    RG_STEP_SEND_OBJECT, /* what a good server answers to the request read last, for an object of
                          * `size` bytes of rg_script_byte, with the fields of `text`, whole or by
                          * range */
    RG_STEP_SEND_OBJECT_WHOLE, /* the same, whatever range was asked for */
    RG_STEP_FLOOD,             /* the text over and over, until the peer or the server ends */
    RG_STEP_SLEEP,             /* ms */
    RG_STEP_GATE,              /* waits until the test opens the gate of number `size` */
    RG_STEP_HOLD,              /* reads and drops what comes, until the peer or the server ends */
    RG_STEP_DEAF,              /* neither reads nor closes, until the server ends */
    RG_STEP_ALERT, /* the TLS alert of number `size`, in the clear, after a first read */
    RG_STEP_CLEAR, /* the text, in the clear, after a first read */
    RG_STEP_CUT,   /* FIN, without close_notify where there is TLS */
    RG_STEP_RESET, /* RST */
    RG_STEP_AGAIN, /* from the first step on */
};

struct rg_step {
    enum rg_step_kind kind;
    const char *text;
    uint64_t size, offset;
    uint64_t body_max; /* SEND_OBJECT: stops after this many bytes of the body, less 1; 0: never */
    uint32_t piece;    /* sends, and bodies of READ: bytes at a time; 0: as many as there are */
    uint32_t ms;       /* SLEEP; sends and bodies of READ: between pieces */
};

/* Steps to write tables with. */
#define RG_READ                                                                                    \
    {                                                                                              \
        .kind = RG_STEP_READ                                                                       \
    }
#define RG_READ_HEAD                                                                               \
    {                                                                                              \
        .kind = RG_STEP_READ_HEAD                                                                  \
    }
#define RG_SEND(text_)                                                                             \
    {                                                                                              \
        .kind = RG_STEP_SEND, .text = (text_)                                                      \
    }
#define RG_SLEEP(ms_)                                                                              \
    {                                                                                              \
        .kind = RG_STEP_SLEEP, .ms = (ms_)                                                         \
    }
#define RG_GATE(number)                                                                            \
    {                                                                                              \
        .kind = RG_STEP_GATE, .size = (number)                                                     \
    }
#define RG_HOLD                                                                                    \
    {                                                                                              \
        .kind = RG_STEP_HOLD                                                                       \
    }
#define RG_DEAF                                                                                    \
    {                                                                                              \
        .kind = RG_STEP_DEAF                                                                       \
    }
#define RG_ALERT(number)                                                                           \
    {                                                                                              \
        .kind = RG_STEP_ALERT, .size = (number)                                                    \
    }
#define RG_CLEAR(text_)                                                                            \
    {                                                                                              \
        .kind = RG_STEP_CLEAR, .text = (text_)                                                     \
    }
#define RG_CUT                                                                                     \
    {                                                                                              \
        .kind = RG_STEP_CUT                                                                        \
    }
#define RG_RESET                                                                                   \
    {                                                                                              \
        .kind = RG_STEP_RESET                                                                      \
    }
#define RG_AGAIN                                                                                   \
    {                                                                                              \
        .kind = RG_STEP_AGAIN                                                                      \
    }
#define RG_END                                                                                     \
    {                                                                                              \
        .kind = RG_STEP_END                                                                        \
    }

struct rg_script_options {
    const struct rg_step *const *scripts; /* borrowed while the server runs */
    uint32_t script_count;
    const struct rg_test_certificate *certificate; /* NULL: plain */
    uint16_t tls_version_max;                      /* 0: the newest */
    uint32_t handshake_delay_ms;
    bool everywhere;     /* on all addresses of the machine, not on 127.0.0.1 alone */
    const char *address; /* instead of 127.0.0.1; NULL: that */
    uint16_t port;       /* 0: a free one */
    int receive_buffer;  /* SO_RCVBUF, which bounds what the kernel takes unread; 0: its own */
    const struct rg_test_certificate *client_ca; /* clients must show what it issued; NULL: none */
};

struct rg_scripted_server;

/* A failure ends the program. */
struct rg_scripted_server *rg_scripted_server_start(const struct rg_script_options *options);
void rg_scripted_server_stop(struct rg_scripted_server *server);
uint16_t rg_scripted_server_port(const struct rg_scripted_server *server);
/* Lets those through who wait at the gate of this number, which is below RG_SCRIPT_GATES_MAX, or
 * come to it later. */
void rg_scripted_server_open(struct rg_scripted_server *server, uint32_t gate);
/* Those who come from now on wait again. */
void rg_scripted_server_shut(struct rg_scripted_server *server, uint32_t gate);

/* From where the index-th connection came, which must have been accepted. */
void rg_scripted_server_peer(struct rg_scripted_server *server, uint32_t index,
                             struct sockaddr_in *out_address);

/* What it saw so far. Heads are in the order of their arrival; NULL: there is none. */
uint32_t rg_scripted_server_connections(struct rg_scripted_server *server);
uint32_t rg_scripted_server_requests(struct rg_scripted_server *server);
const char *rg_scripted_server_head(struct rg_scripted_server *server, uint32_t index);
/* The beginning of the body of a request that was answered, as a text; NULL: it had no READ. */
const char *rg_scripted_server_body(struct rg_scripted_server *server, uint32_t index);
/* Connections whose peer has ended them, by FIN or RST, while the server was reading. */
uint32_t rg_scripted_server_ended(struct rg_scripted_server *server);

/* The content of objects: a byte that tells where it lies, unlike its neighbours far and near. */
#define RG_SCRIPT_FACTOR UINT64_C(0x9e3779b97f4a7c15)
static inline uint8_t rg_script_byte(uint64_t offset)
{
    return (uint8_t)((offset * RG_SCRIPT_FACTOR) >> 56);
}

/* Fills memory with the bytes from `offset` on, or says where it first differs from them; `size`:
 * nowhere. Quick with sanitizers too, which would look at each byte of a loop. */
void rg_script_fill(void *data, uint64_t offset, uint64_t size);
uint64_t rg_script_differs(const void *data, uint64_t offset, uint64_t size);

#endif
