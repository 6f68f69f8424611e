/* See tunnel.h. */
#include "http/tunnel.h"

#include "http/tls_traffic.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rg_tunnel_create(struct rg_tunnel **out_tunnel, const struct rg_tunnel_route *route,
                     struct rg_tls_loop *tls)
{
    struct rg_tunnel *tunnel = calloc(1, sizeof(*tunnel));
    if (tunnel == NULL) {
        return -ENOMEM;
    }
    tunnel->route = route;
    tunnel->secure = route->peer != NULL;
    tunnel->state = tunnel->secure ? RG_TUNNEL_SHAKING : RG_TUNNEL_ASKED;
    tunnel->answer = malloc(RG_PROXY_ANSWER_SIZE_MAX);
    if (tunnel->answer == NULL ||
        (tunnel->secure && rg_tls_init_client(&tunnel->tls, tls, route->peer) < 0)) {
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
        rg_tls_fini(&tunnel->tls);
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
    return -ECONNABORTED;
}

void rg_tunnel_ended(struct rg_tunnel *tunnel)
{
    (void)fail(tunnel, RG_STATUS_CONNECT, "closed the connection without an answer");
}

static int fail_tls(struct rg_tunnel *tunnel)
{
    enum rg_status status = tunnel->state == RG_TUNNEL_SHAKING
                                ? rg_tls_failure_status(tunnel->tls.failure)
                                : RG_STATUS_CONNECTION_LOST;
    return fail(tunnel, status, "and its TLS failed: %s", rg_tls_failure_text(&tunnel->tls));
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
        taken = rg_tls_seal(&tunnel->tls, request, (size_t)size, out);
    } else if (out->capacity - out->size >= (size_t)size) {
        memcpy(out->data + out->size, request, (size_t)size);
        out->size += (size_t)size;
    } else {
        taken = -ENOBUFS;
    }
    explicit_bzero(request, sizeof(request));
    tunnel->asked = true;
    return taken == size ? 0 : fail(tunnel, RG_STATUS_CONNECT, "could not be asked for a tunnel");
}

static int answer_take(struct rg_tunnel *tunnel, const struct rg_h1_head *head)
{
    unsigned status = head->status;
    if (status >= 200 && status < 300) {
        return 0;
    }
    tunnel->final = status >= 400 && status < 500 && status != 408 && status != 429;
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
        return rg_tls_open(&tunnel->tls, in, dest, room, out);
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
    RG_ASSERT(tunnel->state != RG_TUNNEL_OPEN);
    if (tunnel->state == RG_TUNNEL_SHAKING) {
        int rc = rg_tls_handshake(&tunnel->tls, in, out);
        if (rc == -EAGAIN || rc == -ENOBUFS) {
            return rc;
        }
        if (rc < 0) {
            return fail_tls(tunnel);
        }
        tunnel->state = RG_TUNNEL_ASKED;
    }
    int rc = tunnel->asked ? 0 : ask(tunnel, out);
    rc = rc == 0 ? answer_step(tunnel, in, out) : rc;
    if (rc == 0 && in->size > 0) {
        rc = fail(tunnel, RG_STATUS_CONNECT, "sent bytes behind its answer");
    }
    if (rc == 0) {
        tunnel->state = RG_TUNNEL_OPEN;
        free(tunnel->answer);
        tunnel->answer = NULL;
    }
    return rc;
}

int rg_tunnel_unwrap(struct rg_tunnel *tunnel, struct rg_tls_in *in, uint8_t *plain, size_t room)
{
    RG_ASSERT(tunnel->secure && tunnel->state == RG_TUNNEL_OPEN);
    /* What is in a record is smaller than the record, and one may have begun earlier. */
    RG_ASSERT(room >= in->size + RG_TLS_PLAIN_MAX);
    size_t size = 0;
    for (;;) {
        struct rg_tls_out reply = {tunnel->reply, tunnel->reply_size, sizeof(tunnel->reply)};
        ssize_t got = rg_tls_open(&tunnel->tls, in, plain + size, room - size, &reply);
        tunnel->reply_size = reply.size;
        if (got == -ENODATA && size == 0) {
            return -ENODATA;
        }
        if (got < 0 && got != -ENODATA) {
            return fail_tls(tunnel);
        }
        if (got <= 0) {
            break;
        }
        size += (size_t)got;
    }
    *in = (struct rg_tls_in){plain, size};
    return 0;
}

ssize_t rg_tunnel_wrap(struct rg_tunnel *tunnel, const uint8_t *data, size_t size,
                       struct rg_tls_out *out)
{
    RG_ASSERT(tunnel->secure && tunnel->state == RG_TUNNEL_OPEN);
    RG_ASSERT(out->capacity - out->size > sizeof(tunnel->reply) + RG_TLS_SEAL_MIN);
    /* It was sealed before. */
    memcpy(out->data + out->size, tunnel->reply, tunnel->reply_size);
    out->size += tunnel->reply_size;
    tunnel->reply_size = 0;
    ssize_t taken = rg_tls_seal(&tunnel->tls, data, size, out);
    return taken < 0 ? fail_tls(tunnel) : taken;
}
