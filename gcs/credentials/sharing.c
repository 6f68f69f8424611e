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
/* No token of ours lives longer; a time that is further ahead is of another clock. */
#define LIFE_NS_MAX (13 * UINT64_C(3600) * RG_NS_PER_S)
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Who the credentials speak for is said by the file alone, by the file and the place in which the
 * process runs, or by something that only this process knows. */
enum scope { SCOPE_FILE, SCOPE_PLACE, SCOPE_PROCESS };

enum found {
    FOUND_NOTHING,
    FOUND_TOKEN,
    FOUND_FAILURE,
};

/* One refresh, while the region is open. */
struct turn {
    struct rg_sharing *sharing;
    struct rg_credentials_run *run;
    struct rg_host_region region;
    struct rg_note_key key;
    struct rg_note *note; /* in the run's arena */
    uint64_t begun_ns;
};

static enum scope external_scope(const struct rg_credentials_config *config)
{
    const char *path = NULL;
    switch (config->source_kind) {
    case RG_SOURCE_URL:
    case RG_SOURCE_AWS:
        return SCOPE_PLACE;
    case RG_SOURCE_FILE:
        path = config->file;
        break;
    case RG_SOURCE_CERTIFICATE:
        path = config->certificate.location;
        break;
    case RG_SOURCE_EXECUTABLE:
        break;
    }
    /* A relative path depends on the folder that the process is in. */
    return path != NULL && *path == '/' ? SCOPE_PLACE : SCOPE_PROCESS;
}

/* The credentials that a token is asked for with. */
static const struct rg_credentials_config *source_of(const struct rg_credentials_config *config)
{
    return config->source != NULL ? config->source : config;
}

static enum scope scope_of(const struct rg_credentials_config *config)
{
    const struct rg_credentials_config *source = source_of(config);
    const struct rg_credentials_kind *kind = source->kind;
    if (kind == &rg_credentials_external_account) {
        return external_scope(source);
    }
    if (kind == &rg_credentials_metadata) {
        return SCOPE_PLACE;
    }
    bool by_file = kind == &rg_credentials_service_account ||
                   kind == &rg_credentials_authorized_user || kind == &rg_credentials_external_user;
    return by_file ? SCOPE_FILE : SCOPE_PROCESS;
}

static void mix(uint8_t *secret, const void *data, size_t size)
{
    rg_hmac_sha256(secret, RG_SHA256_SIZE, data, size, secret);
}

/* The number of a namespace is used again when it has ended, and so may that of a folder be; the
 * time at which a folder was made is what tells one container from the next. */
static bool mix_status(uint8_t *secret, const char *path, bool needs_birth)
{
    struct statx status;
    if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &status) < 0 ||
        (needs_birth && (status.stx_mask & STATX_BTIME) == 0)) {
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

static bool mix_place(uint8_t *secret, const struct rg_credentials_config *source)
{
    return mix_status(secret, "/proc/self/ns/net", false) &&
           mix_status(secret, "/proc/self/ns/mnt", false) && mix_status(secret, "/", true) &&
           (source->file == NULL || mix_status(secret, source->file, false));
}

/* Times in a note are counted from the start of the machine, and mean nothing after another. */
static bool mix_boot(uint8_t *secret)
{
    char text[64];
    int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (size > 0) {
        mix(secret, text, (size_t)size);
    }
    return size > 0;
}

static bool key_make(const struct rg_sharing *sharing, const struct rg_credentials_config *config,
                     struct rg_note_key *out_key)
{
    uint8_t secret[RG_SHA256_SIZE];
    memcpy(secret, sharing->hash, sizeof(secret));
    bool known = mix_boot(secret) &&
                 (scope_of(config) == SCOPE_FILE || mix_place(secret, source_of(config)));
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
    int rc = rg_note_write(&turn->region, &turn->key, note);
    if (rc < 0) {
        rg_log(RG_LOG_WARN, "credentials: nothing could be noted for other processes: %s",
               strerrordesc_np(-rc));
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
static enum found token_take(struct turn *turn, bool mine, struct rg_token_out *out_token)
{
    const struct rg_note *note = turn->note;
    uint8_t digest[RG_TOKEN_DIGEST_SIZE];
    rg_token_digest(note->text, digest);
    bool refused = is_refused(turn, digest);
    if (refused && mine) {
        leave_note(turn, RG_NOTE_REFUSED, digest, sizeof(digest));
    }
    if (refused) {
        return FOUND_NOTHING;
    }
    /* The note stays in the arena as long as the run. */
    *out_token = (struct rg_token_out){note->text, note->expires_ns, note->stale_ns};
    return FOUND_TOKEN;
}

static enum found look(struct turn *turn, bool mine, struct rg_token_out *out_token)
{
    const struct rg_note *note = turn->note;
    if (rg_note_read(&turn->region, &turn->key, turn->note) < 0) {
        return FOUND_NOTHING;
    }
    if (note->kind == RG_NOTE_TOKEN && token_is_fresh(note, rg_now_ns())) {
        return token_take(turn, mine, out_token);
    }
    bool failed = note->kind == RG_NOTE_FAILURE || note->kind == RG_NOTE_FAILURE_FATAL;
    return failed && note->made_ns >= turn->begun_ns ? FOUND_FAILURE : FOUND_NOTHING;
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
    const struct rg_credentials_run *run = turn->run;
    int rc = ask(turn->run, config, out_token);
    if (rc == 0) {
        note_token(turn, out_token);
    } else if (!atomic_load(&run->fetcher.cancelled)) {
        leave_note(turn, run->fatal ? RG_NOTE_FAILURE_FATAL : RG_NOTE_FAILURE, run->text,
                   strlen(run->text));
    }
    return rc;
}

/* Whether this process is the one that asks: each RG_SHARING_PATIENCE_NS that nothing came, one
 * more is, and in the end everybody. */
static bool is_my_turn(const struct turn *turn)
{
    uint64_t rank = (rg_now_ns() - turn->begun_ns) / turn->sharing->patience_ns;
    return rank >= RG_NOTE_LOCKS || rg_host_region_lock(&turn->region, turn->key.lock + rank);
}

/* The lock is tried before the note is read: what was noted before it became free is seen. */
static int take_or_ask(struct turn *turn, struct rg_credentials_config *config,
                       struct rg_token_out *out_token)
{
    struct rg_credentials_run *run = turn->run;
    uint64_t pause_ns = PAUSE_NS_MIN;
    for (;;) {
        bool mine = is_my_turn(turn);
        enum found found = look(turn, mine, out_token);
        if (found == FOUND_TOKEN) {
            turn->sharing->taken = true;
            return 0;
        }
        if (found == FOUND_FAILURE) {
            return rg_credentials_fail(run, -EACCES, turn->note->kind == RG_NOTE_FAILURE_FATAL,
                                       "%s", turn->note->text);
        }
        if (mine) {
            return ask_for_all(turn, config, out_token);
        }
        if (!rg_fetcher_wait(&run->fetcher, rg_now_ns() + pause_ns)) {
            return rg_credentials_fail(run, -ETIMEDOUT, false, "%s",
                                       atomic_load(&run->fetcher.cancelled)
                                           ? "cancelled"
                                           : "another process was to get a token, and did not");
        }
        pause_ns = RG_MIN(2 * pause_ns, (uint64_t)PAUSE_NS_MAX);
    }
}

static void say_once(const char *why)
{
    static _Atomic bool said;
    if (!atomic_exchange(&said, true)) {
        rg_log(RG_LOG_WARN, "credentials: each process asks for its own tokens: %s", why);
    }
}

/* False: this process is alone, and sharing->text says why. */
static bool turn_begin(struct turn *turn, const struct rg_credentials_config *config)
{
    struct rg_sharing *sharing = turn->sharing;
    char why[RG_SHARING_TEXT_SIZE - 16] = "it cannot be told which container this is";
    if (scope_of(config) == SCOPE_PROCESS) {
        snprintf(sharing->text, sizeof(sharing->text),
                 "not shared: each process may get another one");
        return false;
    }
    turn->note = rg_secret_alloc(&turn->run->arena, sizeof(*turn->note));
    bool open = turn->note != NULL && key_make(sharing, config, &turn->key) &&
                rg_host_region_open(&turn->region, sharing->folder, why, sizeof(why)) == 0;
    if (!open) {
        say_once(why);
        snprintf(sharing->text, sizeof(sharing->text), "not shared: %s", why);
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
    struct turn turn = {.sharing = sharing, .run = run, .region.fd = -1, .begun_ns = rg_now_ns()};
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
