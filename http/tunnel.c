/* The way through a proxy: see tunnel.h. */
#include "http/tunnel.h"

#include "http/answer.h"
#include "http/tls_traffic.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(state) (1u << (state))

static const uint8_t states_after[RG_TUNNEL_STATE_COUNT] = {
    [RG_TUNNEL_SHAKING] = BIT(RG_TUNNEL_ASKING) | BIT(RG_TUNNEL_REFUSED),
    [RG_TUNNEL_ASKING] = BIT(RG_TUNNEL_ASKED) | BIT(RG_TUNNEL_REFUSED),
    [RG_TUNNEL_ASKED] = BIT(RG_TUNNEL_OPEN) | BIT(RG_TUNNEL_REFUSED),
    [RG_TUNNEL_OPEN] = BIT(RG_TUNNEL_BROKEN),
    /* A transport that has not been closed yet may try to send again. */
    [RG_TUNNEL_BROKEN] = BIT(RG_TUNNEL_BROKEN),
};

static void tunnel_enter(struct rg_tunnel *tunnel, enum rg_tunnel_state state)
{
    RG_ASSERT(states_after[tunnel->state] & BIT(state));
    tunnel->state = (uint8_t)state;
}

int rg_tunnel_create(struct rg_tunnel **out_tunnel, const struct rg_tunnel_route *route,
                     struct rg_tls_loop *tls)
{
    struct rg_tunnel *tunnel = calloc(1, sizeof(*tunnel));
    if (tunnel == NULL) {
        return -ENOMEM;
    }
    tunnel->route = route;
    tunnel->secure = route->peer != NULL;
    tunnel->state = tunnel->secure ? RG_TUNNEL_SHAKING : RG_TUNNEL_ASKING;
    tunnel->answer = malloc(RG_PROXY_ANSWER_SIZE_MAX);
    if (tunnel->answer == NULL ||
        (tunnel->secure && rg_tunnel_tls_init(&tunnel->outer, tls, route->peer) < 0)) {
        rg_tunnel_destroy(tunnel);
        return -ENOMEM;
    }
    *out_tunnel = tunnel;
    return 0;
}

void rg_tunnel_destroy(struct rg_tunnel *tunnel)
{
    if (tunnel == NULL) {
        return;
    }
    if (tunnel->secure) {
        rg_tunnel_tls_fini(&tunnel->outer);
    }
    free(tunnel->answer);
    free(tunnel);
}

static int fail(struct rg_tunnel *tunnel, enum rg_status status, const char *format, ...)
    RG_PRINTF(3, 4);

static int fail(struct rg_tunnel *tunnel, enum rg_status status, const char *format, ...)
{
    va_list args;
    int size =
        snprintf(tunnel->text, sizeof(tunnel->text), "the proxy %s ", tunnel->route->proxy->name);
    va_start(args, format);
    vsnprintf(tunnel->text + size, sizeof(tunnel->text) - (size_t)size, format, args);
    va_end(args);
    tunnel->status = status;
    tunnel_enter(tunnel, tunnel->state >= RG_TUNNEL_OPEN ? RG_TUNNEL_BROKEN : RG_TUNNEL_REFUSED);
    return -ECONNABORTED;
}

void rg_tunnel_ended(struct rg_tunnel *tunnel)
{
    (void)fail(tunnel, RG_STATUS_CONNECT, "closed the connection without an answer");
}

static int fail_tls(struct rg_tunnel *tunnel)
{
    enum rg_status status = tunnel->state == RG_TUNNEL_SHAKING
                                ? rg_tls_failure_status(tunnel->outer.tls.failure)
                                : RG_STATUS_CONNECTION_LOST;
    return fail(tunnel, status, "and its TLS failed: %s", rg_tls_failure_text(&tunnel->outer.tls));
}

/* Sends the request for the tunnel. */
static int ask(struct rg_tunnel *tunnel, struct rg_tls_out *out)
{
    char request[RG_PROXY_REQUEST_SIZE_MAX];
    int size =
        rg_proxy_encode(tunnel->route->proxy, tunnel->route->target, request, sizeof(request));
    RG_ASSERT(size > 0);
    ssize_t taken = size;
    if (tunnel->secure) {
        taken = rg_tls_seal(&tunnel->outer.tls, request, (size_t)size, out);
    } else if (out->capacity - out->size >= (size_t)size) {
        memcpy(out->data + out->size, request, (size_t)size);
        out->size += (size_t)size;
    } else {
        taken = -ENOBUFS;
    }
    explicit_bzero(request, sizeof(request));
    if (taken != size) {
        return fail(tunnel, RG_STATUS_CONNECT, "could not be asked for a tunnel");
    }
    tunnel_enter(tunnel, RG_TUNNEL_ASKED);
    return 0;
}

static int answer_take(struct rg_tunnel *tunnel, const struct rg_h1_head *head)
{
    unsigned status = head->status;
    if (status >= 200 && status < 300) {
        return 0;
    }
    tunnel->final = rg_answer_refuses(status);
    const char *advice = "";
    if (status == 407) {
        advice = ": it wants another user and password in the proxy's URL";
    }
    return fail(tunnel, RG_STATUS_CONNECT, "refuses a tunnel to %s with %u %.*s%s",
                tunnel->route->target, status, (int)RG_MIN(head->reason.size, 64u),
                head->reason.data != NULL ? head->reason.data : "", advice);
}

/* Parses what has come of the answer. */
static int answer_parse(struct rg_tunnel *tunnel)
{
    struct rg_h1_head head;
    while (tunnel->answer_size > 0) {
        int end = rg_h1_parse_response(&head, true, tunnel->answer, tunnel->answer_size,
                                       tunnel->answer_scanned);
        if (end == -EAGAIN) {
            tunnel->answer_scanned = tunnel->answer_size;
            break;
        }
        if (end < 0) {
            return fail(tunnel, RG_STATUS_CONNECT, "does not answer in HTTP: %s",
                        rg_h1_error_text(head.error));
        }
        if (head.status >= 200) {
            int rc = answer_take(tunnel, &head);
            return rc == 0 && (size_t)end != tunnel->answer_size
                       ? fail(tunnel, RG_STATUS_CONNECT, "sent bytes behind its answer")
                       : rc;
        }
        tunnel->answer_size -= (size_t)end;
        tunnel->answer_scanned = 0;
        memmove(tunnel->answer, tunnel->answer + end, tunnel->answer_size);
    }
    return -EAGAIN;
}

/* Moves received bytes to the answer. > 0: how many; 0: none are left. */
static ssize_t answer_read(struct rg_tunnel *tunnel, struct rg_tls_in *in, struct rg_tls_out *out)
{
    uint8_t *dest = tunnel->answer + tunnel->answer_size;
    size_t room = RG_PROXY_ANSWER_SIZE_MAX - tunnel->answer_size;
    if (tunnel->secure) {
        return rg_tls_open(&tunnel->outer.tls, in, dest, room, out);
    }
    size_t size = RG_MIN(room, in->size);
    if (size > 0) {
        memcpy(dest, in->data, size);
        in->data += size;
        in->size -= size;
    }
    return (ssize_t)size;
}

static int answer_step(struct rg_tunnel *tunnel, struct rg_tls_in *in, struct rg_tls_out *out)
{
    for (;;) {
        if (tunnel->answer_size == RG_PROXY_ANSWER_SIZE_MAX) {
            return fail(tunnel, RG_STATUS_CONNECT, "sends an answer without end");
        }
        ssize_t got = answer_read(tunnel, in, out);
        if (got == 0) {
            return -EAGAIN;
        }
        if (got == -ENOSPC) {
            return fail(tunnel, RG_STATUS_CONNECT, "sends an answer without end");
        }
        if (got == -ENODATA) {
            rg_tunnel_ended(tunnel);
            return -ECONNABORTED;
        }
        if (got < 0) {
            return fail_tls(tunnel);
        }
        tunnel->answer_size += (size_t)got;
        int rc = answer_parse(tunnel);
        if (rc != -EAGAIN) {
            return rc;
        }
    }
}

int rg_tunnel_step(struct rg_tunnel *tunnel, struct rg_tls_in *in, struct rg_tls_out *out)
{
    RG_ASSERT(tunnel->state <= RG_TUNNEL_ASKED);
    if (tunnel->state == RG_TUNNEL_SHAKING) {
        int rc = rg_tls_handshake(&tunnel->outer.tls, in, out);
        if (rc == -EAGAIN || rc == -ENOBUFS) {
            return rc;
        }
        if (rc < 0) {
            return fail_tls(tunnel);
        }
        tunnel_enter(tunnel, RG_TUNNEL_ASKING);
    }
    int rc = tunnel->state == RG_TUNNEL_ASKING ? ask(tunnel, out) : 0;
    rc = rc == 0 ? answer_step(tunnel, in, out) : rc;
    if (rc == 0 && in->size > 0) {
        rc = fail(tunnel, RG_STATUS_CONNECT, "sent bytes behind its answer");
    }
    if (rc == 0) {
        tunnel_enter(tunnel, RG_TUNNEL_OPEN);
        free(tunnel->answer);
        tunnel->answer = NULL;
    }
    return rc;
}

int rg_tunnel_unwrap(struct rg_tunnel *tunnel, struct rg_tls_in *in, uint8_t *plain, size_t room)
{
    RG_ASSERT(rg_tunnel_wraps(tunnel));
    int rc = rg_tunnel_tls_unwrap(&tunnel->outer, in, plain, room);
    return rc == -EPROTO ? fail_tls(tunnel) : rc;
}

int rg_tunnel_wrap(struct rg_tunnel *tunnel, struct rg_send_buffers *buffers,
                   struct rg_send_buffer *buffer)
{
    RG_ASSERT(rg_tunnel_wraps(tunnel));
    int rc = rg_tunnel_tls_wrap(&tunnel->outer, buffers, buffer);
    return rc == -EPROTO ? fail_tls(tunnel) : rc;
}
