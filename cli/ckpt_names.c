#include "cli/ckpt_names.h"

#include "runtime/base.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the patterns # stands for digits and @ for the 16 hexadecimal digits of a save of ringest.dcp.
 */
#define SAVE_DIGITS 16
/* The most digits of a step, so that it fits 64 bits. */
#define STEP_DIGITS_MAX 18
/* More than any name of data has. */
#define DATA_NAME_SIZE_MAX 128

/* Names with a step, which is the last number of them; that of a version comes behind it. */
static const struct {
    const char *pattern;
    bool has_versions; /* Lightning's */
} steps[] = {
    {"#", false},
    {"step#", false},
    {"step-#", false},
    {"step=#", true},
    {"step_#", false},
    {"global_step#", false},
    {"global_step-#", false},
    {"global_step=#", false},
    {"global_step_#", false},
    {"checkpoint-#", false},
    {"epoch=#-step=#", true},
};

static const struct {
    const char *ending;
    enum ckpt_kind kind;
} endings[] = {{".pt", CKPT_TORCH},
               {".pth", CKPT_TORCH},
               {".ckpt", CKPT_TORCH},
               {".safetensors", CKPT_SAFETENSORS}};
/* Lightning's folders have the ending of its files. */
static const char folder_ending[] = ".ckpt";

enum { WEIGHTS = 1, OF_MANY = 2, MAY_DIFFER = 4 };
struct part {
    const char *pattern;
    int flags;
};

/* clang-format off */
#define DCP_PARTS(folder, flags)            \
    {folder ".metadata", flags},            \
    {folder ".metadata.tmp", 0},            \
    {folder "__#.metadata", 0},             \
    {folder "__#_#.distcp", 0},             \
    {folder "__#_#.@.distcp", 0},           \
    {folder "__#_#.@.rank.distcp", 0},      \
    {folder "meta.pt", 0}
#define DEEPSPEED_PARTS(folder)                                         \
    {folder "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt", 0},        \
    {folder "expert_#_mp_rank_#_model_states.pt", 0},                   \
    {folder "expp_rank_#_mp_rank_#_optim_states.pt", 0},                \
    {folder "layer_#-model_#-model_states.pt", 0},                      \
    {folder "layer_#-model_states.pt", 0},                              \
    {folder "layer_#_expert_#_mp_rank_#_model_states.pt", 0},           \
    {folder "mp_rank_#_model_states.pt", WEIGHTS},                      \
    {folder "zero_pp_rank_#_mp_rank_#_model_states.pt", WEIGHTS},       \
    {folder "zero_pp_rank_#_mp_rank_#_optim_states.pt", 0}
/* clang-format on */
static const struct part dcp_parts[] = {DCP_PARTS("", 0)};
static const struct part deepspeed_parts[] = {DEEPSPEED_PARTS("")};
static const struct part huggingface_parts[] = {
    {"README.md", MAY_DIFFER},
    {"adapter_config.json", 0},
    {"adapter_model.bin", WEIGHTS},
    {"adapter_model.safetensors", WEIGHTS},
    {"added_tokens.json", 0},
    {"chat_template.jinja", 0},
    {"chat_template.json", 0},
    {"config.json", 0},
    {"generation_config.json", 0},
    {"latest", 0},
    {"merges.txt", 0},
    {"model-#-of-#.safetensors", OF_MANY},
    {"model.safetensors", WEIGHTS},
    {"model.safetensors.index.json", 0},
    {"optimizer.bin", 0},
    {"optimizer.pt", 0},
    {"preprocessor_config.json", 0},
    {"processor_config.json", 0},
    {"pytorch_model-#-of-#.bin", OF_MANY},
    {"pytorch_model.bin", WEIGHTS},
    {"pytorch_model.bin.index.json", 0},
    {"pytorch_model_fsdp.bin", WEIGHTS},
    {"rng_state.pth", MAY_DIFFER},
    {"rng_state_#.pth", MAY_DIFFER},
    {"scaler.pt", 0},
    {"scheduler.pt", 0},
    {"sentencepiece.bpe.model", 0},
    {"special_tokens_map.json", 0},
    {"spiece.model", 0},
    {"tokenizer.json", 0},
    {"tokenizer.model", 0},
    {"tokenizer_config.json", 0},
    {"trainer_state.json", 0},
    {"training_args.bin", 0},
    {"video_preprocessor_config.json", 0},
    {"vocab.json", 0},
    {"vocab.txt", 0},
    {"zero_to_fp32.py", MAY_DIFFER},
    {"zero_to_torch.py", MAY_DIFFER},
    DCP_PARTS("optimizer_#/", 0),
    DCP_PARTS("pytorch_model_fsdp_#/", WEIGHTS),
    DEEPSPEED_PARTS("global_step#/"),
};
static_assert(RG_ARRAY_LEN(huggingface_parts) <= 64, "a bit for each part");

static const struct {
    const struct part *parts;
    int count;
} layouts[] = {
    [CKPT_DCP] = {dcp_parts, RG_ARRAY_LEN(dcp_parts)},
    [CKPT_HUGGINGFACE] = {huggingface_parts, RG_ARRAY_LEN(huggingface_parts)},
    [CKPT_DEEPSPEED] = {deepspeed_parts, RG_ARRAY_LEN(deepspeed_parts)},
    [CKPT_UNKNOWN] = {NULL, 0},
};

static size_t digits(const char *text, size_t size)
{
    size_t count = 0;
    while (count < size && isdigit((unsigned char)text[count])) {
        count++;
    }
    return count;
}

static size_t hex_digits(const char *text, size_t size)
{
    size_t count = 0;
    while (count < size && text[count] != '\0' && strchr("0123456789abcdef", text[count]) != NULL) {
        count++;
    }
    return count;
}

/* How much of a text a pattern takes, from its beginning, or SIZE_MAX if it does not fit.
 * out_number, if not NULL, is the last of its numbers, which must then not be too long. */
static size_t pattern_take(const char *pattern, const char *text, size_t size, uint64_t *out_number)
{
    size_t at = 0;
    for (; *pattern != '\0'; pattern++) {
        size_t taken = 1;
        if (*pattern == '#') {
            taken = digits(text + at, size - at);
            if (out_number != NULL && taken > STEP_DIGITS_MAX) {
                return SIZE_MAX;
            }
            uint64_t number = 0;
            for (size_t i = 0; out_number != NULL && i < taken; i++) {
                number = number * 10 + (uint64_t)(text[at + i] - '0');
            }
            if (out_number != NULL) {
                *out_number = number;
            }
        } else if (*pattern == '@') {
            taken = hex_digits(text + at, size - at) == SAVE_DIGITS ? SAVE_DIGITS : 0;
        } else if (at == size || text[at] != *pattern) {
            return SIZE_MAX;
        }
        if (taken == 0) {
            return SIZE_MAX;
        }
        at += taken;
    }
    return at;
}

static bool matches(const char *pattern, const char *text)
{
    size_t size = strlen(text);
    return pattern_take(pattern, text, size, NULL) == size;
}

const char *ckpt_kind_text(enum ckpt_kind kind)
{
    static const char *const texts[] = {
        [CKPT_NONE] = "none",
        [CKPT_TORCH] = "torch",
        [CKPT_SAFETENSORS] = "safetensors",
        [CKPT_DCP] = "dcp",
        [CKPT_HUGGINGFACE] = "huggingface",
        [CKPT_DEEPSPEED] = "deepspeed",
        [CKPT_UNKNOWN] = "unknown",
    };
    return texts[kind];
}

/* Where a file's ending begins; the end of one that has none. */
static const char *ending_of(const char *last)
{
    const char *dot = strrchr(last, '.');
    /* Dots that a name begins with are no ending. */
    bool has_ending = dot != NULL && (size_t)(dot - last) >= strspn(last, ".");
    return has_ending ? dot : last + strlen(last);
}

enum ckpt_kind ckpt_file_kind(const char *last)
{
    const char *ending = ending_of(last);
    for (size_t i = 0; i < RG_ARRAY_LEN(endings); i++) {
        if (strcmp(ending, endings[i].ending) == 0) {
            return endings[i].kind;
        }
    }
    return CKPT_NONE;
}

/* "-v3" or nothing. */
static bool is_version(const char *text, size_t size)
{
    size_t count = size > 2 ? digits(text + 2, size - 2) : 0;
    return size == 0 || (size > 2 && memcmp(text, "-v", 2) == 0 && count == size - 2 &&
                         count <= STEP_DIGITS_MAX);
}

static bool name_read(const char *stem, size_t size, const char *ending, struct ckpt_name *out_name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(steps); i++) {
        uint64_t step = 0;
        size_t taken = pattern_take(steps[i].pattern, stem, size, &step);
        bool fits = taken == size || (taken < size && steps[i].has_versions &&
                                      is_version(stem + taken, size - taken));
        if (fits) {
            *out_name =
                (struct ckpt_name){.step = step, .is_number = strcmp(steps[i].pattern, "#") == 0};
            snprintf(out_name->series, sizeof(out_name->series), "%s%s", steps[i].pattern, ending);
            return true;
        }
    }
    return false;
}

bool ckpt_file_name(const char *last, struct ckpt_name *out_name)
{
    const char *ending = ending_of(last);
    return ckpt_file_kind(last) != CKPT_NONE &&
           name_read(last, (size_t)(ending - last), ending, out_name);
}

bool ckpt_folder_name(const char *last, size_t size, struct ckpt_name *out_name)
{
    size_t ending_size = strlen(folder_ending);
    bool has_ending =
        size >= ending_size && memcmp(last + size - ending_size, folder_ending, ending_size) == 0;
    return name_read(last, has_ending ? size - ending_size : size, has_ending ? ".ckpt/" : "/",
                     out_name);
}

const char *ckpt_data_end(const char *text)
{
    static const char *const patterns[] = {"__#_#.distcp", "__#_#.@.distcp", "__#_#.@.rank.distcp"};
    for (size_t i = 0; i < RG_ARRAY_LEN(patterns); i++) {
        size_t taken = pattern_take(patterns[i], text, strnlen(text, DATA_NAME_SIZE_MAX), NULL);
        if (taken != SIZE_MAX) {
            return text + taken;
        }
    }
    return NULL;
}

bool ckpt_is_data(const char *last)
{
    const char *end = ckpt_data_end(last);
    return end != NULL && *end == '\0';
}

bool ckpt_is_metadata(const char *last)
{
    return strcmp(last, ".metadata") == 0 || matches("__#.metadata", last);
}

bool ckpt_is_ours(const char *last)
{
    return matches("__#_#.@.distcp", last) || matches("__#_#.@.rank.distcp", last);
}

bool ckpt_is_dcp(const char *last)
{
    return ckpt_is_metadata(last) || ckpt_is_data(last);
}

/* "__3.metadata", or data of a rank that may have saved alone: torch's own, and ours of the kind.
 */
bool ckpt_rank_alone(const char *last, uint64_t *out_rank)
{
    static const char *const data[] = {"__#_#.distcp", "__#_#.@.rank.distcp"};
    if (!matches("__#.metadata", last) && !matches(data[0], last) && !matches(data[1], last)) {
        return false;
    }
    *out_rank = strtoull(last + 2, NULL, 10);
    return true;
}

void ckpt_as_pattern(const char *last, size_t size, char out_text[static CKPT_PATTERN_SIZE])
{
    size_t at = 0;
    for (size_t i = 0, taken; i < size && at < CKPT_PATTERN_SIZE - 1; i += taken) {
        taken = digits(last + i, size - i);
        out_text[at++] = taken > 0 ? '#' : last[i];
        taken = RG_MAX(taken, (size_t)1);
    }
    out_text[at] = '\0';
}

bool ckpt_may_be_of_process(const char *last, size_t size)
{
    static const char *const words[] = {"gpu",     "host", "node",    "part",  "proc",
                                        "process", "rank", "replica", "shard", "worker"};
    for (size_t i = 0; i < size; i++) {
        for (size_t j = 0; j < RG_ARRAY_LEN(words); j++) {
            size_t end = i + strlen(words[j]);
            if (end >= size || memcmp(last + i, words[j], strlen(words[j])) != 0) {
                continue;
            }
            end += memchr("-_=", last[end], 3) != NULL;
            if (end < size && isdigit((unsigned char)last[end])) {
                return true;
            }
        }
    }
    return size > 0 && digits(last, size) == size;
}

int ckpt_part_of(enum ckpt_kind kind, const char *name)
{
    for (int i = 0; i < layouts[kind].count; i++) {
        if (matches(layouts[kind].parts[i].pattern, name)) {
            return i;
        }
    }
    return -1;
}

const char *ckpt_part_text(enum ckpt_kind kind, int part)
{
    return layouts[kind].parts[part].pattern;
}

static uint64_t parts_with(enum ckpt_kind kind, int flags)
{
    uint64_t found = 0;
    for (int i = 0; i < layouts[kind].count; i++) {
        found |= (layouts[kind].parts[i].flags & flags) != 0 ? UINT64_C(1) << i : 0;
    }
    return found;
}

uint64_t ckpt_parts_that_differ(enum ckpt_kind kind)
{
    return parts_with(kind, WEIGHTS | OF_MANY | MAY_DIFFER);
}

uint64_t ckpt_parts_with_weights(enum ckpt_kind kind)
{
    return parts_with(kind, WEIGHTS);
}

uint64_t ckpt_parts_of_many(enum ckpt_kind kind)
{
    return parts_with(kind, OF_MANY);
}
