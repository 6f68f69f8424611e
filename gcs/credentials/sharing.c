/* See sharing.h. First what a note's key is made of, then notes, then whose turn it is to ask. */
#include "gcs/credentials/sharing.h"

#include "gcs/host/note.h"
#include "gcs/wire/digest.h"
#include "runtime/clock.h"
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Between two looks at what another process is about to note: this, then twice as much. */
#define PAUSE_NS_MIN (10 * RG_NS_PER_MS)
#define PAUSE_NS_MAX (100 * RG_NS_PER_MS)
/* A stopped process may have the table's lock. Whoever cannot note anything for so long gives up.
 */
#define WRITE_PATIENCE_NS (200 * RG_NS_PER_MS)
#define WRITE_PAUSE_NS RG_NS_PER_MS
/* No token of ours lives longer; a time that is further ahead is of another clock. */
#define LIFE_NS_MAX (13 * UINT64_C(3600) * RG_NS_PER_S)
/* Locks of those who ask beside another. */
#define SECOND_LOCKS (UINT64_C(1) << 34)
#define WHY_SIZE (RG_SHARING_TEXT_SIZE - sizeof("not shared: "))
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define CLOCK_OFFSETS "/proc/self/timens_offsets"

/* One refresh, while the region is open. */
struct turn {
    struct rg_sharing *sharing;
    struct rg_credentials_run *run;
    struct rg_host_region region;
    struct rg_note_key key;
    struct rg_note *note; /* in the run's arena */
};

/* Only what another process cannot have without the same right to the token: the file contains a
 * secret, or every process of the place may ask. The file of an external account contains none. */
static bool is_sharable(const struct rg_credentials_config *config)
{
    const struct rg_credentials_kind *kind = rg_credentials_source(config)->kind;
    return kind == &rg_credentials_service_account || kind == &rg_credentials_authorized_user ||
           kind == &rg_credentials_external_user || kind == &rg_credentials_metadata;
}

static void mix(uint8_t *secret, const void *data, size_t size)
{
    rg_hmac_sha256(secret, RG_SHA256_SIZE, data, size, secret);
}

/* False: there is no such file, or no such mark on it. */
static bool mix_status(uint8_t *secret, const char *path, bool needs_birth)
{
    struct statx status;
    if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &status) < 0 ||
        (needs_birth && ((status.stx_mask & STATX_BTIME) == 0 || status.stx_btime.tv_sec == 0))) {
        return false;
    }
    const uint64_t numbers[] = {
        status.stx_ino,
        status.stx_dev_major,
        status.stx_dev_minor,
        needs_birth ? (uint64_t)status.stx_btime.tv_sec : 0,
        needs_birth ? status.stx_btime.tv_nsec : 0,
    };
    mix(secret, numbers, sizeof(numbers));
    return true;
}

/* The number of a namespace is used again when it has ended, and so may that of a folder be. The
 * time at which the root folder was made tells one container from the next, which may have
 * another account: without that time nothing is shared. */
static bool mix_place(uint8_t *secret)
{
    return mix_status(secret, "/proc/self/ns/net", false) &&
           mix_status(secret, "/proc/self/ns/mnt", false) && mix_status(secret, "/", true);
}

static bool mix_file(uint8_t *secret, const char *path)
{
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (size > 0) {
        mix(secret, text, (size_t)size);
    }
    return size > 0;
}

/* Times in a note are counted from the start of the machine. They mean nothing after another, nor
 * in a namespace with another clock. Older kernels have no such namespaces. */
static bool mix_clock(uint8_t *secret)
{
    (void)mix_file(secret, CLOCK_OFFSETS);
    return mix_file(secret, BOOT_ID);
}

static bool key_make(const struct rg_sharing *sharing, const struct rg_credentials_config *config,
                     struct rg_note_key *out_key)
{
    uint8_t secret[RG_SHA256_SIZE];
    memcpy(secret, sharing->hash, sizeof(secret));
    bool is_of_place = config->kind == &rg_credentials_metadata;
    bool known = mix_clock(secret) && (!is_of_place || mix_place(secret));
    rg_note_key_derive(out_key, secret);
    explicit_bzero(secret, sizeof(secret));
    return known;
}

void rg_token_digest(const char *text, uint8_t out[RG_TOKEN_DIGEST_SIZE])
{
    rg_sha256(text, strlen(text), out);
}

static uint64_t stale_at(const struct rg_token_out *made, uint64_t now_ns)
{
    uint64_t stale_ns = made->expires_ns - RG_MIN(made->expires_ns, (uint64_t)RG_TOKEN_STALE_NS);
    return RG_MAX(stale_ns, now_ns + RG_REFRESH_INTERVAL_NS);
}

/* Notes are for the good of others: where one cannot be left, they ask for themselves. */
static void leave_note(struct turn *turn, enum rg_note_kind kind, const void *text, size_t size)
{
    struct rg_note *note = turn->note;
    note->kind = kind;
    note->made_ns = rg_now_ns();
    note->text_size = (uint32_t)RG_MIN(size, RG_NOTE_TEXT_MAX);
    memcpy(note->text, text, note->text_size);
    uint64_t until_ns = note->made_ns + WRITE_PATIENCE_NS;
    int rc;
    do {
        rc = rg_note_write(&turn->region, &turn->key, note);
    } while (rc == -EAGAIN && rg_now_ns() < until_ns &&
             rg_fetcher_wait(&turn->run->fetcher, rg_now_ns() + WRITE_PAUSE_NS));
    if (rc < 0) {
        rg_log(RG_LOG_WARN, "credentials: nothing could be noted for other processes: %s",
               rg_error_text(-rc));
    }
}

static bool is_refused(const struct turn *turn, const uint8_t *digest)
{
    const uint8_t *refused = turn->sharing->refused;
    return refused != NULL && memcmp(refused, digest, RG_TOKEN_DIGEST_SIZE) == 0;
}

/* Whether the note, which says something else by now, tells that this token was refused. */
static bool is_struck_out(struct turn *turn, const uint8_t *digest)
{
    const struct rg_note *note = turn->note;
    return rg_note_read(&turn->region, &turn->key, turn->note) == 0 &&
           note->kind == RG_NOTE_REFUSED && note->text_size == RG_TOKEN_DIGEST_SIZE &&
           memcmp(note->text, digest, RG_TOKEN_DIGEST_SIZE) == 0;
}

static void note_token(struct turn *turn, const struct rg_token_out *token)
{
    uint8_t digest[RG_TOKEN_DIGEST_SIZE];
    rg_token_digest(token->text, digest);
    if (is_refused(turn, digest)) {
        leave_note(turn, RG_NOTE_REFUSED, digest, sizeof(digest));
    } else if (!is_struck_out(turn, digest)) {
        turn->note->stale_ns = token->stale_ns;
        turn->note->expires_ns = token->expires_ns;
        leave_note(turn, RG_NOTE_TOKEN, token->text, strlen(token->text));
    }
}

static bool token_is_fresh(const struct rg_note *note, uint64_t now_ns)
{
    return note->made_ns <= now_ns && now_ns < note->stale_ns && now_ns < note->expires_ns &&
           note->expires_ns - note->made_ns <= LIFE_NS_MAX &&
           strlen(note->text) == note->text_size && rg_token_is_sound(note->text);
}

/* Only who is to ask strikes a token out: another may have read the note before it was replaced. */
static bool token_take(struct turn *turn, bool mine, struct rg_token_out *out_token)
{
    const struct rg_note *note = turn->note;
    uint8_t digest[RG_TOKEN_DIGEST_SIZE];
    rg_token_digest(note->text, digest);
    bool refused = is_refused(turn, digest);
    if (refused && mine) {
        leave_note(turn, RG_NOTE_REFUSED, digest, sizeof(digest));
    }
    if (refused) {
        return false;
    }
    /* The note stays in the arena as long as the run. */
    *out_token = (struct rg_token_out){note->text, note->expires_ns, note->stale_ns};
    return true;
}

static bool look(struct turn *turn, bool mine, struct rg_token_out *out_token)
{
    const struct rg_note *note = turn->note;
    return rg_note_read(&turn->region, &turn->key, turn->note) == 0 &&
           note->kind == RG_NOTE_TOKEN && token_is_fresh(note, rg_now_ns()) &&
           token_take(turn, mine, out_token);
}

static int ask(struct rg_credentials_run *run, struct rg_credentials_config *config,
               struct rg_token_out *out_token)
{
    int rc = config->kind->obtain(run, config, out_token);
    if (rc == 0) {
        out_token->stale_ns = stale_at(out_token, rg_now_ns());
    }
    return rc;
}

static int ask_for_all(struct turn *turn, struct rg_credentials_config *config,
                       struct rg_token_out *out_token)
{
    int rc = ask(turn->run, config, out_token);
    if (rc == 0) {
        note_token(turn, out_token);
    }
    return rc;
}

static void be_alone(struct rg_sharing *sharing, const char *why)
{
    rg_host_say_alone("each process asks for its own tokens", why);
    snprintf(sharing->text, sizeof(sharing->text), "not shared: %s", why);
}

static int ask_without_locks(struct turn *turn, int rc, struct rg_credentials_config *config,
                             struct rg_token_out *out_token)
{
    char why[WHY_SIZE], path[RG_HOST_PATH_SIZE_MAX];
    rg_host_path_write(turn->sharing->folder, path, sizeof(path));
    snprintf(why, sizeof(why), "%s cannot be locked: %s", path, rg_error_text(-rc));
    be_alone(turn->sharing, why);
    return ask(turn->run, config, out_token);
}

/* Whoever asks has taken long: it may be stopped. One other asks beside it. */
static bool is_second(const struct turn *turn, uint64_t begun_ns)
{
    return rg_now_ns() - begun_ns >= turn->sharing->patience_ns / RG_SHARING_SECOND_PART &&
           rg_host_region_lock(&turn->region, SECOND_LOCKS + turn->key.lock) == 0;
}

/* The lock is tried before the note is read: what was noted before it became free is seen. Whoever
 * waited and finds nothing knows that the one that asked has failed or ended. It asks without the
 * lock, so that all that waited ask at once: each may have another proxy or network. */
static int take_or_ask(struct turn *turn, struct rg_credentials_config *config,
                       struct rg_token_out *out_token)
{
    const uint64_t begun_ns = rg_now_ns(), until_ns = begun_ns + turn->sharing->patience_ns;
    uint64_t pause_ns = 0;
    for (;;) {
        int rc = rg_host_region_lock(&turn->region, turn->key.lock);
        if (rc < 0 && rc != -EAGAIN) {
            return ask_without_locks(turn, rc, config, out_token);
        }
        if (look(turn, rc == 0, out_token)) {
            turn->sharing->taken = true;
            return 0;
        }
        if (rc == 0 && pause_ns > 0) {
            rg_host_region_unlock(&turn->region, turn->key.lock);
        }
        if (rc == 0 || is_second(turn, begun_ns) || rg_now_ns() >= until_ns) {
            return ask_for_all(turn, config, out_token);
        }
        pause_ns = RG_MIN(RG_MAX(2 * pause_ns, (uint64_t)PAUSE_NS_MIN), (uint64_t)PAUSE_NS_MAX);
        if (!rg_fetcher_wait(&turn->run->fetcher, rg_now_ns() + pause_ns)) {
            return rg_credentials_fail(turn->run, -ETIMEDOUT, false,
                                       "cancelled while another process was asking for a token");
        }
    }
}

/* False: this process is alone, and sharing->text says why. */
static bool turn_begin(struct turn *turn, const struct rg_credentials_config *config)
{
    struct rg_sharing *sharing = turn->sharing;
    char why[WHY_SIZE] = "it cannot be told which container this is";
    if (!is_sharable(config)) {
        snprintf(sharing->text, sizeof(sharing->text),
                 "not shared: the file of an external account contains no secret");
        return false;
    }
    turn->note = rg_secret_alloc(&turn->run->arena, sizeof(*turn->note));
    bool open = turn->note != NULL && key_make(sharing, config, &turn->key) &&
                rg_host_region_open(&turn->region, sharing->folder, why, sizeof(why)) == 0;
    if (!open) {
        be_alone(sharing, why);
        return false;
    }
    char path[RG_HOST_PATH_SIZE_MAX];
    rg_host_path_write(sharing->folder, path, sizeof(path));
    snprintf(sharing->text, sizeof(sharing->text), "shared in %s", path);
    return true;
}

int rg_sharing_obtain(struct rg_sharing *sharing, struct rg_credentials_run *run,
                      struct rg_credentials_config *config, struct rg_token_out *out_token)
{
    struct turn turn = {.sharing = sharing, .run = run, .region.fd = -1};
    sharing->taken = false;
    sharing->text[0] = '\0';
    if (sharing->folder == NULL || !turn_begin(&turn, config)) {
        return ask(run, config, out_token);
    }
    int rc = take_or_ask(&turn, config, out_token);
    rg_host_region_close(&turn.region);
    explicit_bzero(&turn.key, sizeof(turn.key));
    return rc;
}
