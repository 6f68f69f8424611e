/* What checkpoints are called, and what the folders of known kinds hold.
 * ringest/_checkpoint_names.py has the same tables. Nothing here has state or talks to anybody. */
#ifndef RG_CLI_CKPT_NAMES_H
#define RG_CLI_CKPT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ckpt_kind {
    CKPT_NONE = 0, /* no checkpoint */
    CKPT_TORCH,    /* files */
    CKPT_SAFETENSORS,
    CKPT_DCP, /* folders, of PyTorch Distributed Checkpoint, of a Trainer of Hugging Face ... */
    CKPT_HUGGINGFACE,
    CKPT_DEEPSPEED,
    CKPT_UNKNOWN, /* a folder that is called like one */
};

#define CKPT_SERIES_SIZE 40
/* What a name that is recognised says. */
struct ckpt_name {
    char series[CKPT_SERIES_SIZE]; /* what names of one series have in common, with the ending */
    uint64_t step;
    bool is_number; /* nothing else: a folder of that name may be many things */
};

const char *ckpt_kind_text(enum ckpt_kind kind);

/* What a file is, by the ending of the last part of its name: CKPT_NONE, CKPT_TORCH or ... */
enum ckpt_kind ckpt_file_kind(const char *last);
bool ckpt_file_name(const char *last, struct ckpt_name *out_name);
/* The last part of a folder's name, `size` bytes without a slash. */
bool ckpt_folder_name(const char *last, size_t size, struct ckpt_name *out_name);

/* Objects of a distributed checkpoint, by the last part of their names. */
bool ckpt_is_dcp(const char *last); /* makes its folder one */
bool ckpt_is_metadata(const char *last);
bool ckpt_is_data(const char *last);
bool ckpt_is_ours(const char *last); /* data of ringest.dcp, which nobody else calls so */
/* The end of the name of data at the beginning of a text, or NULL. */
const char *ckpt_data_end(const char *text);

/* Metadata of one rank, and data of ranks that may have saved without the others. */
bool ckpt_rank_alone(const char *last, uint64_t *out_rank);

#define CKPT_PATTERN_SIZE 1025
/* Writes the last part of a folder's name with # in place of digits. */
void ckpt_as_pattern(const char *last, size_t size, char out_text[static CKPT_PATTERN_SIZE]);
/* Whether a folder of that name may have no more than one process's part of checkpoints: it is a
 * number, or ends a word such as "rank" so. */
bool ckpt_may_be_of_process(const char *last, size_t size);

/* The number, below 64, of what a name below a folder of that kind is known to be, or -1. */
int ckpt_part_of(enum ckpt_kind kind, const char *name);
/* Its pattern: # stands for digits. */
const char *ckpt_part_text(enum ckpt_kind kind, int part);
/* Sets of parts, as bits: which a later checkpoint of the same run may lack; any one of which means
 * that there are weights; those that are one of several ("model-1-of-2"). */
uint64_t ckpt_parts_that_differ(enum ckpt_kind kind);
uint64_t ckpt_parts_with_weights(enum ckpt_kind kind);
uint64_t ckpt_parts_of_many(enum ckpt_kind kind);

#endif
