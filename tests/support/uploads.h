/* Uploads to the emulator, which goes wrong as a table says, and what has to be true afterwards.
 *
 *     struct rg_upload_scene scene = {.size = 100, .faults = faults};
 *     rg_upload_scene_open(&scene);
 *     struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){...}, from_file);
 *     rg_upload_scene_check_stored(&scene, &done);
 *     rg_upload_scene_close(&scene);
 *
 * The object is gs://bucket/object, its bytes are those of rg_script_byte. */
#ifndef RG_TESTS_SUPPORT_UPLOADS_H
#define RG_TESTS_SUPPORT_UPLOADS_H

#include "tests/support/client.h"
#include "tests/support/emulated.h"

#include <ringest/upload.h>

struct rg_upload_scene {
    uint64_t size;
    const struct rg_emulated_fault *faults;
    struct rg_client_options options;
    /* Set by open. */
    struct rg_test_client c;
    struct rg_emulated *emulated;
    uint8_t *data;
    int fd; /* the same bytes, behind RG_UPLOAD_FILE_OFFSET others */
};

#define RG_UPLOAD_FILE_OFFSET 1234

void rg_upload_scene_open(struct rg_upload_scene *scene);
void rg_upload_scene_close(struct rg_upload_scene *scene);
/* Bucket, object, size and source are filled in where they are not set. */
void rg_upload_scene_submit(struct rg_upload_scene *scene, const struct rg_upload *upload,
                            bool from_file);
struct rg_completion rg_upload_scene_run(struct rg_upload_scene *scene,
                                         const struct rg_upload *upload, bool from_file);
/* OK, stored to the byte, and nothing else is left on the server. Releases the lease. */
void rg_upload_scene_check_stored(struct rg_upload_scene *scene, struct rg_completion *done);
/* A failure that left nothing. Releases the lease. */
void rg_upload_scene_check_nothing(struct rg_upload_scene *scene, struct rg_completion *done,
                                   enum rg_status want);

/* Waits until so many requests of a kind have come. */
void rg_upload_scene_await(struct rg_upload_scene *scene, enum rg_emulated_kind kind,
                           uint32_t count);

/* Uploads once under one fault, from memory and from a file, and checks that it is stored. */
void rg_upload_try(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                   const struct rg_conditions *conditions, struct rg_emulated_fault fault);
/* The same with a fault that no attempt survives: nothing may be left. */
void rg_upload_try_failing(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                           const struct rg_conditions *conditions, struct rg_emulated_fault fault,
                           enum rg_status want);
/* Ends an upload when the first request of a kind hangs, by cancelling it or by its deadline:
 * nothing may be left. */
void rg_upload_try_ending(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                          enum rg_emulated_kind kind);

#endif
