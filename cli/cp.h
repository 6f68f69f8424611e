/* `ringest cp`, `ringest mv` and `ringest rsync`, in parts:
 *
 *   cp.c          the command line, and what is said at the end
 *   cp_plan.c     from sources and destination to items, in the order of names
 *   cp_walk.c     ... of a source that is a file or a tree of this machine
 *   cp_run.c      items through a few worker threads with a bounded number of requests out
 *   cp_upload.c   what becomes of an item that is a file to be an object, or standard input
 *   cp_download.c ... an object to be a file
 *   cp_copy.c     ... an object to be another one
 *   cp_move.c     the source of a move, when the destination has its bytes
 *   cp_sync.c     what only the destination of `ringest rsync --delete` has
 *   cp_retype.c   type, metadata and storage class of an object that has its bytes already
 *
 * A worker does the work on files itself, while the requests of its other items go on; none of them
 * waits for another, except where there is nothing to do. */
#ifndef RG_CLI_CP_H
#define RG_CLI_CP_H

#include "cli/filter.h"
#include "cli/local.h"
#include "cli/lookup.h"
#include "cli/places.h"
#include "cli/progress.h"
#include "cli/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define CP_METADATA_MAX 64

struct cp_options {
    bool recursive, dry_run, no_clobber, follow_symlinks, json;
    bool literal; /* no name of a source has wildcards */
    bool moves;   /* sources are removed */
    bool syncs;   /* the contents of a folder become those of another */
    bool deletes; /* what only the destination of a sync has */
    struct filter filter;
    int64_t if_generation_match; /* of what is at the destination; 0: no condition */
    const char *content_type;    /* NULL: by the file's name; "": the service's default */
    /* Of objects that are written, too; NULL: nothing is said. */
    const char *cache_control, *content_encoding, *storage_class;
    struct rg_metadata metadata[CP_METADATA_MAX];
    size_t metadata_count;
    enum rg_upload_method method;
    uint64_t part_size;
    uint32_t concurrency;
};

/* Parts of downloads, and what an upload takes at most in one request. */
#define CP_PART_SIZE_DEFAULT RG_MIB(8)
/* Bytes of bodies that may be out by default: in memory, or soon to be. */
#define CP_BYTES_OUT_MAX RG_MIB(256)

/* Bucket, object, its class, and the one that was asked for. */
#define CP_CLASS_FORMAT                                                                            \
    "gs://%s/%s: the server gave it the storage class %s instead of %s; with Autoclass, the "      \
    "bucket chooses classes itself: leave --storage-class out"

enum cp_kind { CP_UPLOAD, CP_DOWNLOAD, CP_COPY };

/* What a request that is out for an item does: transfer -> stat -> class -> update -> confirm ->
 * remove, of which all but one may be left out. */
enum cp_step {
    CP_STEP_TRANSFER,
    CP_STEP_STAT,
    CP_STEP_CLASS,
    CP_STEP_UPDATE,
    CP_STEP_CONFIRM,
    CP_STEP_REMOVE
};

/* One file or object on its way. Made by the plan; freed by the run when it has ended. */
struct cp_item {
    struct cp_item *next;
    enum cp_kind kind;
    char *path;                    /* the file; NULL for copies */
    char *bucket, *name;           /* the object that is written, or read by a download */
    char *from_bucket, *from_name; /* of a copy */
    uint64_t size;                 /* of what is copied */
    uint64_t size_planned;         /* as it was when the work began */
    bool is_size_known;
    int64_t generation; /* of the object that is read; 0: the newest */
    uint32_t crc32c;    /* of it, if has_crc32c */
    bool has_crc32c;
    struct there there; /* the object at the destination */

    /* While it is worked on. Of downloads in parts, these are changed under the run's lock. */
    int fd;
    struct stat source; /* of the file that is uploaded, when it was opened */
    void *buffer;
    struct local_file file;
    uint32_t part_next;  /* the first that has not been asked for */
    uint32_t parts_out;  /* being worked on */
    uint32_t parts_left; /* not in the file yet */
    bool is_in_parts, has_failed;
    bool is_gzip;       /* the object that is read is stored with Content-Encoding gzip */
    bool is_unguarded;  /* written without a condition of ours */
    bool has_no_bucket; /* there was none to write it to when the destination was looked at */
    bool is_same;       /* the object has these bytes, and only its type may be another */
    bool looks_again;   /* at an object that has another generation than the one that was seen */
    bool asks_class;    /* written, and only its class is looked at */
    uint32_t copies;    /* that were made again, because the one that is there may be another's */
    enum cp_step step;
};

struct cp_counts {
    uint64_t planned, copied, updated, skipped, failed, kept, removed;
    uint64_t gzipped;              /* of what was copied: files that have compressed bytes */
    uint64_t bytes_planned, bytes; /* bytes: of what was copied */
    uint64_t unplanned;            /* skipped or failed without having been an item */
    /* With the parts of files that are not complete yet; of those, what was not transferred; and
     * the sizes of the uploads that are being worked on. */
    uint64_t bytes_now, bytes_skipped, bytes_uploading;
};

#define CP_WHOLE_ITEM UINT32_MAX

/* A request that is out for an item, or what is to be asked for next. */
struct cp_job {
    struct cp_item *item; /* NULL: free */
    uint32_t part;        /* CP_WHOLE_ITEM: no part of a file in parts */
    uint64_t cost;        /* of the run's bytes_out */
};

struct cp_worker {
    struct cp_run *run;
    pthread_t thread;
    struct rg_cq *cq;
    struct cp_job *jobs; /* by user_data */
    uint32_t *free_jobs; /* a stack */
    uint32_t job_count, out;
    bool cancelled;
};

struct cp_run {
    const struct cp_options *options;
    struct cli_session *session;
    struct cp_worker *workers;
    uint32_t worker_count;
    pthread_mutex_t lock;
    pthread_cond_t work, /* there is something to do */
        room;            /* the queue is short again, or all items have ended */
    struct cp_item *queue_head, **queue_tail;
    size_t queue_count;
    struct cp_item *in_parts; /* downloads with parts that have not been asked for */
    uint64_t items_active;    /* taken off the queue and not ended */
    uint64_t bytes_out, bytes_out_max;
    uint64_t part_size; /* of downloads: the options', unless an event loop has not the memory */
    bool is_planned;
    atomic_bool stopping;
    atomic_bool has_asked_class; /* of one object that was written, for all of them */
    struct cp_counts counts;
    struct progress progress;
    /* Of the plan: where things go, if sources may meet or the rest is to be removed; and what is
     * a link in the source and left out. */
    struct places places, links;
    pthread_mutex_t moved_lock;
    struct places moved; /* files that have the bytes of a moved object, as "DEVICE:INODE:TIME" */
};

/* cp_run.c, for cp.c and cp_plan.c */
int cp_run_open(struct cp_run *run, struct cli_session *session, const struct cp_options *options,
                uint64_t bytes_out_max);
/* Takes the item; waits while many are queued. False: it was interrupted and nothing more will be
 * done. */
bool cp_run_add(struct cp_run *run, struct cp_item *item);
/* Something that cannot become an item, said in one line. */
void cp_run_refuse(struct cp_run *run, const char *format, ...) RG_PRINTF(2, 3);
void cp_run_skip(struct cp_run *run);
/* Waits for the rest. */
void cp_run_finish(struct cp_run *run);
void cp_run_close(struct cp_run *run);
struct cp_item *cp_item_create(enum cp_kind kind);
void cp_item_destroy(struct cp_item *item);

/* cp_run.c, for the work on items. Each item is ended exactly once. */
enum cp_end { CP_COPIED, CP_UPDATED, CP_SKIPPED, CP_FAILED };
void cp_item_end(struct cp_worker *worker, struct cp_item *item, enum cp_end end);
/* cp_move.c: gives the item's file its name, as local_publish does. Of a move, -EALREADY if another
 * source was moved to the same file, which two names can mean: where a folder is a link, or the
 * file system ignores case. */
int cp_item_publish(struct cp_worker *worker, struct cp_item *item);
/* The same as cp_item_end for an item whose bytes the destination has. Of a move, its source is
 * removed before. */
void cp_item_done(struct cp_worker *worker, struct cp_item *item, enum cp_end end);
void cp_move_take(struct cp_worker *worker, const struct cp_job *job,
                  const struct rg_completion *completion);
/* Prints the line, unless everything is being stopped, and ends the item. */
void cp_item_fail(struct cp_worker *worker, struct cp_item *item, const char *format, ...)
    RG_PRINTF(3, 4);
/* The same for a request that failed; what would fail for everything else too stops the run. */
void cp_item_refused(struct cp_worker *worker, struct cp_item *item,
                     const struct rg_completion *completion);
/* The same for what would fail for everything else too: stops the run. */
void cp_item_stop(struct cp_worker *worker, struct cp_item *item, const char *format, ...)
    RG_PRINTF(3, 4);
/* The same for a file that fits into one part and could not be written, after a negative errno: a
 * disk without room for it has none for the others. */
void cp_item_unwritten(struct cp_worker *worker, struct cp_item *item, int rc);
/* Gives the slot for a request; its index is the request's user_data. */
struct cp_job *cp_job_open(struct cp_worker *worker, struct cp_item *item, uint32_t part,
                           uint64_t cost, uint64_t *out_user_data);
/* When the request was refused. */
void cp_job_cancel(struct cp_worker *worker, struct cp_job *job);
/* The item's parts may be asked for from now on. */
void cp_run_split(struct cp_worker *worker, struct cp_item *item);

/* cp_upload.c, cp_download.c, cp_copy.c: starting an item, and taking the completion of a job of
 * it. `job` is a copy. */
/* Whether the destination has the item's bytes already, without a request: for dry runs. */
bool cp_upload_is_there(const struct cp_options *options, struct cp_item *item);
bool cp_download_is_there(const struct cp_item *item);
void cp_upload_start(struct cp_worker *worker, struct cp_item *item);
void cp_upload_take(struct cp_worker *worker, const struct cp_job *job,
                    const struct rg_completion *completion);
void cp_download_start(struct cp_worker *worker, struct cp_item *item);
void cp_download_part(struct cp_worker *worker, struct cp_item *item, uint32_t part);
void cp_download_take(struct cp_worker *worker, const struct cp_job *job,
                      const struct rg_completion *completion);
/* Under the run's lock: whether the item has parts that nobody has asked for. */
bool cp_download_next_part(struct cp_item *item, uint32_t *out_part);
/* When everything stops: ends the items that nobody has a part of. */
void cp_download_stop(struct cp_worker *worker);
void cp_copy_start(struct cp_worker *worker, struct cp_item *item);
void cp_copy_take(struct cp_worker *worker, const struct cp_job *job,
                  const struct rg_completion *completion);

/* Whether objects that have their bytes already get a type, other metadata or a storage class all
 * the same. */
bool cp_retypes(const struct cp_options *options);
void cp_retype_start(struct cp_worker *worker, struct cp_item *item);
/* Of an object that was written with a class: whether its bucket lets it have that. */
void cp_retype_ask_class(struct cp_worker *worker, struct cp_item *item, int64_t generation);
/* The same as cp_retype_start from what is known of the object. */
void cp_retype_info(struct cp_worker *worker, struct cp_item *item,
                    const struct rg_object_info *info);
void cp_retype_take(struct cp_worker *worker, const struct cp_job *job,
                    const struct rg_completion *completion);

/* cp_plan.c: turns the sources into items. CLI_DONE, or an exit status after printing why not; what
 * fails for one file only is counted in the run. */
int cp_plan(struct cp_run *run, char *const *sources, size_t source_count, const char *destination);
/* The command line makes sense; otherwise CLI_USAGE after saying why. */
int cp_plan_check(const struct cp_options *options, char *const *sources, size_t source_count,
                  const char *destination);

/* cp_upload.c: from standard input. */
int cp_from_stdin(struct cli_session *session, const struct cp_options *options,
                  const struct cli_uri *uri, struct cp_counts *counts);

/* cp_sync.c: whether an object that was listed below `above` is a temporary one of somebody's
 * upload, which will compose or remove it. One that was asked for by its folder's name is not
 * meant. */
bool cp_is_temporary(const char *name, const char *above);

/* cp_sync.c: what the destination of `ringest rsync --delete` had before anything was copied, and
 * goes if the source has nothing of that name. Only what was seen then is removed: an object if it
 * still has its generation, a file if it has not changed.
 *
 *   open -> (the copy) -> delete -> close */
struct cp_sync;

/* Lists the destination. CLI_DONE, or an exit status after printing why not. */
int cp_sync_open(struct cp_sync **out_sync, struct cli_session *session,
                 const struct cp_options *options, const char *destination);
/* Removes what is not among `kept`, nor below or among `links`; counts it in *out_removed, or, with
 * --dry-run, prints it. CLI_DONE, or CLI_FAILED after printing why. */
int cp_sync_delete(struct cp_sync *sync, const struct places *kept, const struct places *links,
                   uint64_t *out_removed);
/* NULL is fine. */
void cp_sync_close(struct cp_sync *sync);

#endif
