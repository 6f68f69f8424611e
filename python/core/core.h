/* The C side of the Python package: objects that hold what the library hands out, and the calls
 * that submit and wait. Everything that can be in Python without costing time per object is there.
 *
 *   Client   a runtime and a client of this process; opened at first use, and again after fork()
 *   Queue    requests that are awaited, for an event loop of Python's
 *   GetMany  the iterator of get_many
 *   Buffer   one lease, by the buffer protocol; keeps its runtime alive
 *   Objects  names, sizes and generations: a manifest, in a file or in memory
 *   Reader   one epoch (rg_reader)
 *   Iteration  what goes out of a Reader to who iterates, and is consumed then
 *   AsyncIteration  the same for who awaits
 *   Writer   a stream into one object (rg_writer)
 *   TarIndex where the samples of tar archives lie (rg_tar_index)
 *   ObjectReader  one object as a file that is read (rg_checkpoint_reader)
 *
 * The limited API of Python 3.11, so that one build serves every later version; and for
 * free-threaded interpreters, which it does not compile for, all of the API of Python 3.14.
 *
 * What is here changes under one lock: the interpreter's, or where it has none, that of CORE_ENTER,
 * which comments call by the same name. It is let go of while waiting, once for each batch. */
#ifndef RG_PYTHON_CORE_H
#define RG_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "runtime/base.h"

#include <ringest/ringest.h>
#include <stdatomic.h>

/* A state machine of this extension was about to change in a way that it never does. Ends the
 * process with a line that names what it is and both states. */
__attribute__((noreturn, cold)) void core_state_fail(const char *noun, const char *from,
                                                     const char *to);

/* First in every function that the interpreter calls, unless what it looks at never changes: has
 * the lock of the extension until the function returns. Without the interpreter's lock one critical
 * section does as well: whoever waits, or calls what waits, is out of it meanwhile, and a call from
 * within another is in it already. */
#ifdef Py_GIL_DISABLED
#if PY_VERSION_HEX < 0x030E0000
#error "ringest needs version 3.14 of a free-threaded Python, or a later one"
#endif
extern PyMutex core_mutex;
static inline void core_leave(PyCriticalSection *section)
{
    PyCriticalSection_End(section);
}
#define CORE_ENTER()                                                                               \
    __attribute__((cleanup(core_leave))) PyCriticalSection core_section;                           \
    PyCriticalSection_BeginMutex(&core_section, &core_mutex)
#else
#define CORE_ENTER() ((void)0)
#endif

/* How long a wait lasts at most before signals are looked at: Ctrl-C may have gone to another
 * thread than the one that waits. */
#define CORE_WAIT_NS (UINT64_C(50) * 1000 * 1000)

/* A runtime with its client, shared by everything that refers to memory of it.
 *
 * Invariant, under the interpreter's lock: there are references, or shares, or it is being closed;
 * `windows` counts the objects of core_use that have memory and are IDLE; held_bytes is the sum of
 * what the Buffers hold that exist. */
struct core_session {
    struct rg_runtime *runtime;
    struct rg_client *client;
    unsigned connections; /* of the client; 0: its default */
    unsigned process;     /* which opened it: see core_session_is_own */
    uint64_t patience_ns; /* that a wait has for memory which Buffers hold */
    /* Under the interpreter's lock. */
    unsigned references; /* of objects and calls */
    unsigned windows;    /* of readers and iterators, that nobody is using now */
    uint64_t held_bytes; /* of Buffers that exist */
    struct rg_cq *spare; /* an empty queue of one slot for the next call; NULL: none */
    /* Changed by any thread, with or without the interpreter's lock. */
    _Atomic unsigned owners;         /* shares, and one for all `references` */
    _Atomic uint64_t exported_bytes; /* of shares, which held_bytes leaves out */
};
void core_session_ref(struct core_session *session);
/* Closes it with the last reference and share. Not in the middle of a wait. */
void core_session_unref(struct core_session *session);
/* False in a child of the process that opened it. */
bool core_session_is_own(const struct core_session *session);
/* Bytes that Buffers, and what was made of them, keep from others. */
uint64_t core_session_held(const struct core_session *session);

/* A lease that is held outside of the interpreter, which may be gone when it is let go of: by a
 * Buffer and the consumers of its DLPack capsules. */
struct core_share;
/* Takes the lease. One reference, of the caller; NULL with an exception. */
struct core_share *core_share_new(struct core_session *session, struct rg_lease *lease);
/* Has a copy of the bytes and no lease, nor a session. One reference, of the caller; NULL with an
 * exception. */
struct core_share *core_share_copy(const void *data, size_t size);
/* That copy. */
const void *core_share_bytes(const struct core_share *share);
/* Whether a device knows the memory of the lease, if there is one. */
bool core_share_is_pinned(const struct core_share *share);
/* Moves what a Buffer adds to the session's held_bytes to the share, as long as that lives. */
void core_share_charge(struct core_share *share, uint64_t *held);
/* Any thread, without the interpreter's lock, also after the interpreter's end. NULL is fine. */
void core_share_ref(struct core_share *share);
void core_share_unref(struct core_share *share);

/* Whether somebody uses an object: see use.c, which alone changes it. */
enum core_use_state {
    CORE_USE_MAKING = 0, /* core_use_open is still to come */
    CORE_USE_IDLE,
    CORE_USE_BUSY,    /* a call is in it */
    CORE_USE_CLOSING, /* the same, and it was closed: the call frees it on its way out */
    CORE_USE_CLOSED,
};
struct core_use {
    struct core_session *session; /* the object's, like the next two */
    const char *noun;
    PyObject *uri;  /* that messages name; NULL: none */
    bool is_window; /* it has memory of the client's while nobody uses it */
    enum core_use_state state;
    unsigned long thread; /* that uses it */
};
/* Last, when all that calls need is there. */
void core_use_open(struct core_use *self, struct core_session *session, const char *noun,
                   PyObject *uri, bool is_window);
/* False with an exception: it is closed, or somebody uses it, or it is the parent's of this
 * process.
 */
bool core_use_begin(struct core_use *self);
/* False with an exception: it was closed. To be asked wherever other threads may have run, or
 * functions, iterators and finalizers of the caller's. */
bool core_use_goes_on(const struct core_use *self);
/* True: it was closed, and what it has is to be freed now. */
bool core_use_end(struct core_use *self);
/* It was closed, whether or not a call is still in it. */
bool core_use_is_closed(const struct core_use *self);
/* True: what it has is to be freed now; otherwise that was done, or whoever uses it does so. */
bool core_use_close(struct core_use *self);
/* In a child of fork: a thread that exists in the parent only was in the middle of a call. What it
 * had in hand is left alone for good. */
bool core_use_is_half_done(const struct core_use *self);
/* For an object that has ended and may live on: gives up its session, so that closing the client
 * closes the connections. Does nothing if a call was in use of it when the process forked. */
void core_use_drop_session(struct core_use *self, struct core_session **session);

extern PyTypeObject *core_client_type, *core_objects_type, *core_reader_type, *core_tar_type;
int core_buffer_register(PyObject *module);
int core_client_register(PyObject *module);
int core_many_register(PyObject *module);
int core_queue_register(PyObject *module);
int core_objects_register(PyObject *module);
int core_reader_register(PyObject *module);
int core_item_register(PyObject *module);
int core_iteration_register(PyObject *module);
int core_awaited_register(PyObject *module);
int core_writer_register(PyObject *module);
int core_object_reader_register(PyObject *module);
int core_error_register(PyObject *module);
int core_tar_register(PyObject *module);

/* Keeps a digest as a str in hexadecimal, unless there is one, and returns it. */
PyObject *core_digest_keep(PyObject **place, const uint8_t digest[RG_DIGEST_SIZE]);
/* What is kept, or None, and its setter. `closure` is where in the object it is kept, in bytes. */
PyObject *core_digest_get_known(PyObject *object, void *closure);
int core_digest_set_known(PyObject *object, PyObject *digest, void *closure);

/* Adds a heap type to the module. */
int core_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out_type);

/* Takes the completion's lease. */
PyObject *core_buffer_new(struct core_session *session, const struct rg_completion *completion);
/* _buffer_of(bytes) of the module: what a pickled Buffer becomes. */
PyObject *core_buffer_of(PyObject *module, PyObject *data);
/* The first `count` ranges of a completion of rg_get_ranges, a list of Buffers that share its
 * lease. Takes it. */
PyObject *core_buffers_of_ranges(struct core_session *session,
                                 const struct rg_completion *completion, uint32_t count);

/* A part of the bytes of a Buffer, as a Buffer that shares its lease. NULL with a ValueError. */
PyObject *core_buffer_slice(PyObject *buffer, uint64_t offset, uint64_t size);

/* An exception object for a completion that failed. New reference; the lease is released. */
PyObject *core_error_new(PyObject *uri, const struct rg_completion *completion);
/* Raises it. Always NULL. */
PyObject *core_error_raise(PyObject *uri, const struct rg_completion *completion);
/* Logs a request that was slow or took several attempts. -1 with an exception, such as that of a
 * signal's handler, which runs with whatever code of Python's does. One that was set before stays,
 * and the result is 0. */
int core_request_note(PyObject *uri, const struct rg_completion *completion);
bool core_request_is_notable(const struct rg_completion *completion);
/* Logs that so many cancelled requests take a while to end. */
void core_drain_note(uint64_t count);
/* Logs that a session was opened. 0, or -1 with an exception. */
int core_session_note(struct core_session *session);
/* Why the library did not take a request, after a negative errno. */
const char *core_refused_text(int rc);
/* Raises OSError, or ValueError with the text, for a negative errno. Always NULL. */
PyObject *core_errno_raise(int rc, const char *text);
/* The same for a request that the library did not take, which is named. */
PyObject *core_submit_raise(int rc, PyObject *uri);
/* PySequence_List of an argument of a call for `uri`; what it must be is told where it is none. */
PyObject *core_list_of(PyObject *uri, PyObject *given, const char *name, const char *items);
/* Puts what a TypeError or ValueError, which is set, is about before its text. */
void core_error_begin_with(PyObject *name);

/* What one request became: uri, index, data, generation, error. Takes the completion's lease;
 * borrows the uri. */
PyObject *core_item_new(struct core_session *session, PyObject *uri, uint64_t index,
                        const struct rg_completion *completion);
/* The same for an object of Objects, whose URI is made when somebody asks for it. */
PyObject *core_item_of_objects(struct core_session *session, PyObject *objects, uint64_t index,
                               const struct rg_completion *completion);

/* Its data; borrowed. And to have other data; takes the reference. */
PyObject *core_item_data(PyObject *item);
void core_item_set_data(PyObject *item, PyObject *data);

/* What a Client was made with: see settings.c. */
struct core_settings {
    struct rg_runtime_options runtime;
    struct rg_client_options client;
    uint64_t patience_ns;
    PyObject *texts; /* owned; a list of the str that the options point into */
};
/* Reads a dict, or NULL. False with an exception; in any case it is to be freed. */
bool core_settings_parse(struct core_settings *self, PyObject *keywords);
void core_settings_free(struct core_settings *self);
/* Its options, and what the environment gives of those that it has not. False with a ValueError. */
bool core_settings_complete(const struct core_settings *self, struct rg_runtime_options *runtime,
                            struct rg_client_options *client);

/* What all sessions of the process have counted, also those that were closed. */
PyObject *core_stats(PyObject *module, PyObject *nothing);
/* With names and units: of all, and of one Client. */
PyObject *core_metrics(PyObject *module, PyObject *nothing);
PyObject *core_client_metrics(PyObject *client, PyObject *nothing);
PyObject *core_client_checkpoint_took(PyObject *client, PyObject *args);
/* The session of a Client for this process; NULL with an exception. New reference, since any code
 * of the caller's may close the client. */
struct core_session *core_client_session(PyObject *client);

/* Opens a queue for the session; raises. */
int core_queue_open(struct core_session *session, uint32_t capacity, struct rg_cq **out_cq);
/* A queue of one slot for the time of a call; raises. Mapping one anew for each call costs as much
 * as a system call of its own, and interrupts the loops when it is unmapped. */
int core_queue_borrow(struct core_session *session, struct rg_cq **out_cq);
/* Takes it; it is empty, and nothing is on its way to it. */
void core_queue_return(struct core_session *session, struct rg_cq *cq);

/* What a wait has to look after: see wait.c. */
struct core_watch {
    struct core_session *session;
    bool is_lean; /* needs next to no memory of the client's itself */
    uint64_t quiet_since_ns, moved_bytes;
};
void core_watch_begin(struct core_watch *self, struct core_session *session, bool is_lean);
/* Something has come. */
void core_watch_news(struct core_watch *self);
/* After CORE_WAIT_NS, or less, in which nothing has: 0, or -1 with an exception, which a signal's
 * handler raised, or a want of memory is; or `use`, if any, was closed. */
int core_watch_go_on(struct core_watch *self, const struct core_use *use);
/* The same of memory alone, where the wait is not what is to be ended. */
bool core_watch_is_starved(struct core_watch *self);
/* Raises what a wait ends in then. Always NULL. */
PyObject *core_memory_raise(const struct core_session *session);
/* True when requests wait for memory. */
bool core_memory_is_short(struct core_session *session);

/* Takes between 1 and `max` completions, letting other threads run; -1 with an exception. */
int core_wait(struct core_watch *watch, const struct core_use *use, struct rg_cq *cq,
              struct rg_completion *out, uint32_t max);
/* The same for at least `min`, but fewer, or 0, when no more have come in CORE_WAIT_NS, after
 * which core_watch_go_on is to be asked. */
int core_wait_slice(struct rg_cq *cq, struct rg_completion *out, uint32_t max, uint32_t min);
/* Others have filled the client, and nothing of the caller's is out whose end it could wait for:
 * lets a moment pass. 0, or -1 with an exception. */
int core_client_full_wait(struct core_watch *watch, const struct core_use *use);

/* Takes off what is still out after a wait was given up, so that no memory is written later:
 * requests whose user_data is between `first` and `end` are cancelled. The exception that ended the
 * wait stays. */
void core_drain(struct core_session *session, struct rg_cq *cq, uint64_t first, uint64_t end,
                uint64_t out_count);

/* Before memory of the caller's is filled, of any size: asks the kernel for huge pages where a
 * whole one is inside of it; in pages.c. Changes nothing of its content. */
void core_pages_advise(void *memory, uint64_t size);
/* The same for ranges, together, and what lies between them. `collapses`: takes the time to move
 * pages that are there into huge ones: a tenth of a second for each GB at most, best while the
 * bytes are on their way. Needs no lock of the interpreter's. */
void core_pages_prepare(const struct rg_range *ranges, size_t count, bool collapses);

struct core_into;
/* What get_into reads of an object, and where to; in into.c. NULL is fine. */
void core_into_free(struct core_into *into);
int core_into_traverse(struct core_into *into, visitproc visit, void *arg);
/* Client.get_into, and the same with memory given by its addresses. */
PyObject *core_client_get_into(PyObject *client, PyObject *args, PyObject *keywords);
PyObject *core_client_get_into_addresses(PyObject *client, PyObject *args, PyObject *keywords);

/* "gs://bucket/object", or "gcs://", cut in two. False with a ValueError. */
struct core_uri {
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char object[RG_OBJECT_NAME_SIZE_MAX + 1];
};
bool core_uri_parse(PyObject *text, struct core_uri *out_uri);

/* Whole numbers, of ints and what has __index__, but no bools: see numbers.c. NULL was not given,
 * and *out stays. False with an exception that names the argument, its value, and what it may be.
 */
bool core_number(PyObject *value, const char *name, uint64_t min, uint64_t max, uint64_t *out);
/* The same of a str, whose UTF-8 is borrowed from it, or None. */
bool core_text(PyObject *value, const char *name, const char **out);
/* The same of a storage class. */
bool core_storage_class(PyObject *value, const char **out);
bool core_number32(PyObject *value, const char *name, uint32_t min, uint32_t max, uint32_t *out);
/* 0: the newest. */
bool core_generation(PyObject *value, int64_t *out);
/* `if_generation_match` as the library has it: None is no condition, and 0 that there must be no
 * such object. */
bool core_condition(PyObject *value, int64_t *out);
/* if_metageneration_match: None is no condition; at least 1. */
bool core_metageneration(PyObject *value, int64_t *out);
/* The largest offset, length or other number of bytes. */
#define CORE_BYTES_MAX ((uint64_t)INT64_MAX)

/* One request of a call: see operation.c. */
struct core_operation;
struct core_operation_kind {
    const char *name;
    /* Takes references, all of which fini gives back. 0, or -1 with an exception. */
    int (*parse)(struct core_operation *self, PyObject *args, PyObject *keywords);
    int (*submit)(struct core_operation *self, struct core_session *session, struct rg_cq *cq,
                  const struct core_uri *uri, uint64_t user_data);
    /* Takes the lease of a completion that is good, or of delete_many's, whatever it is. */
    PyObject *(*result)(struct core_operation *self, struct core_session *session,
                        const struct rg_completion *done);
    bool is_lean; /* see core_operation_is_lean */
};
extern const struct core_operation_kind core_put_kind, core_update_kind, core_compose_kind,
    core_get_into_kind, core_read_at_kind;
/* A dict of what is known of the object, with found_done, from a completion whose lease it takes.
 */
PyObject *core_info_found_dict(PyObject *uri, const struct rg_completion *done);

struct core_listing;
struct core_listing_kind {
    unsigned limit;          /* of entries; 0: all */
    bool is_folder;          /* up to the next "/" of names */
    bool is_detailed;        /* all that is told of each object, and no Objects */
    bool is_without_markers; /* no empty objects whose names end in "/" */
    /* As of rg_listing_options; they live as long as the call's arguments. */
    const char *glob, *start_offset, *end_offset;
    int versions; /* a boolean */
};
/* NONE -init-> READY -submit-> OUT -result-> READY, to be submitted again or not; fini -> NONE. */
enum core_operation_state {
    CORE_OPERATION_NONE = 0,
    CORE_OPERATION_READY,
    CORE_OPERATION_OUT, /* its request borrows memory of the operation's */
};
struct core_operation {
    enum core_operation_state state;
    const struct core_operation_kind *kind;
    PyObject *uri;      /* owned; a str, or a tuple of them */
    PyObject *target;   /* owned; of a copy, a str */
    PyObject *progress; /* owned; called as a listing goes on */
    PyObject *reader;   /* owned; an ObjectReader */
    Py_buffer data;
    const char *content_type; /* lives as long as the call's arguments, like the next three */
    const char *content_encoding, *cache_control, *storage_class;
    int fd_plus_1;      /* of the file whose bytes are written; 0: `data` */
    uint64_t file_size; /* of it */
    struct rg_metadata *metadata;
    struct rg_compose_source *sources;
    PyObject *texts; /* owned; what metadata and sources point into */
    struct core_into *into;
    int64_t generation, condition, metageneration;
    int exclusive; /* a boolean, as the parser of arguments has them */
    uint64_t offset, length, gap;
    struct rg_range *ranges;
    uint32_t count;
    struct core_listing_kind listed;
    struct core_listing *listing;
    const char *upload_id;        /* as long as content_type */
    PyObject *found;              /* owned; a list that pages are added to */
    char *key_marker, *id_marker; /* owned; of the page before */
};
/* From a call's arguments. -1 with an exception, and nothing to be finished. */
int core_operation_init(struct core_operation *self, const char *name, PyObject *args,
                        PyObject *keywords);
/* 0; -EAGAIN: there is no room; else negative with an exception. */
int core_operation_submit(struct core_operation *self, struct core_session *session,
                          struct rg_cq *cq, uint64_t user_data);
/* Whether it needs next to no memory of the client's: see core_watch. */
bool core_operation_is_lean(const struct core_operation *self);
/* Takes the lease. NULL with an exception, or without: it is to be submitted again. */
PyObject *core_operation_result(struct core_operation *self, struct core_session *session,
                                const struct rg_completion *done);
/* Visits what it refers to, for the garbage collector. */
int core_operation_traverse(struct core_operation *self, visitproc visit, void *arg);
/* Its request has ended, and nobody wants to know how: the queue was drained, or is the parent's of
 * this process. */
void core_operation_drop(struct core_operation *self);
/* Not while its request is out. */
void core_operation_fini(struct core_operation *self);
/* All of it, waiting for the result. */
PyObject *core_operation_call(const char *name, PyObject *client, PyObject *args,
                              PyObject *keywords);

/* The iterator of Client.get_many. */
PyObject *core_many_new(PyObject *client, PyObject *args, PyObject *keywords);

/* A listing page by page, into Objects. Returns 0 or a negative errno. */
int core_listing_open(struct core_listing **out_listing, struct core_session *session,
                      const struct core_uri *uri, const struct core_listing_kind *kind);
int core_listing_next(struct core_listing *listing, struct rg_cq *cq, uint64_t user_data);
/* Takes the lease. The Objects after the last page; NULL without an exception: there may be more.
 * Stores how many names there are so far. */
PyObject *core_listing_page(struct core_listing *listing, const struct rg_completion *done,
                            Py_ssize_t *out_count);
/* While no page is out. NULL is fine. */
void core_listing_close(struct core_listing *listing);

/* Takes a writer in memory. NULL with an exception. */
PyObject *core_objects_new(struct rg_manifest_writer *writer);
/* To such a writer. -1 with an exception. */
int core_objects_add(struct rg_manifest_writer *writer, const struct rg_object *object);
/* gs://BUCKET/NAME. NULL with an exception. */
PyObject *core_objects_uri(PyObject *objects, uint64_t index);
/* Fills what a reader needs to know of them. */
void core_objects_describe(PyObject *objects, struct rg_reader_options *options);

/* A value goes out: all that was taken of its Reader so far is consumed; or what was pending is
 * told instead. -1 with a ValueError where it was closed. Runs no code of Python's, and so no
 * signal handler. */
int core_reader_hand_out(PyObject *reader);
/* What becomes of a value: the caller has asked for it, an event loop waits for it, it goes out, or
 * there is none. For Reader.explain. */
enum core_reader_step {
    CORE_READER_ASKED,
    CORE_READER_SLEEPS,
    CORE_READER_GIVES,
    CORE_READER_ENDS
};
void core_reader_step(PyObject *reader, enum core_reader_step step);
/* Iteration(values, reader). NULL with an exception. And whether somebody has closed it. */
PyObject *core_iteration_new(PyObject *values, PyObject *reader);
bool core_iteration_is_closed(PyObject *iteration);

/* Functions of the module, in log.c. log_begin(level): lines of the library's log up to that level
 * are kept. log_take() -> (level, place, text, lines lost before it), waits; None after log_end().
 * log_forget(): in a child of fork, nothing is kept any more. */
PyObject *core_log_begin(PyObject *module, PyObject *level);
PyObject *core_log_end(PyObject *module, PyObject *unused);
PyObject *core_log_forget(PyObject *module, PyObject *unused);
PyObject *core_log_take(PyObject *module, PyObject *unused);

/* Functions of the module, in trace.c. trace_begin(events); trace_end() -> (events, dropped), each
 * event (at_ns, took_ns, request, connection, operation, what, thread, attempts, name). */
PyObject *core_trace_begin(PyObject *module, PyObject *number);
PyObject *core_trace_end(PyObject *module, PyObject *nothing);

/* unite([(state, base), ...], all_ranks) of the module; in base.c. */
PyObject *core_base_unite(PyObject *module, PyObject *args);

/* The same for a TarIndex. */
void core_tar_describe(PyObject *index, struct rg_reader_options *options);
/* Opens a cursor with the members that are wanted, a tuple of str or None. -1 with an exception. */
int core_tar_cursor(PyObject *index, PyObject *members, struct rg_tar_cursor **out_cursor);
/* Texts that live as long as the tuple of str, or None; at most RG_TAR_MEMBERS_MAX. -1 with an
 * exception. */
int core_tar_members(PyObject *members, const char **out_members, size_t *out_count);
/* The Item of one sample: its data is a dict of the members' Buffers, with "__key__" and "__url__".
 * Takes the completion's lease. */
PyObject *core_tar_item(PyObject *index, struct rg_tar_cursor *cursor, struct core_session *session,
                        uint64_t number, const struct rg_completion *completion);

#endif
