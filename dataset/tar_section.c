/* See tar_section.h. */
#include "dataset/tar_section.h"

#include "gcs/wire/checksum.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MIN RG_KIB(4)
#define BLOCKS_MIN 16

int rg_tar_section_init(struct rg_tar_section *section)
{
    *section = (struct rg_tar_section){.error = ""};
    section->encoder = calloc(1, sizeof(*section->encoder));
    section->sample = calloc(1, sizeof(*section->sample));
    section->extensions = malloc((size_t)RG_TAR_MEMBERS_MAX * RG_TAR_EXTENSION_SIZE_MAX);
    if (section->encoder == NULL || section->sample == NULL || section->extensions == NULL) {
        rg_tar_section_fini(section);
        return -ENOMEM;
    }
    return 0;
}

static void collecting_fini(struct rg_tar_section *section)
{
    free(section->encoder);
    free(section->sample);
    free(section->extensions);
    section->encoder = NULL;
    section->sample = NULL;
    section->extensions = NULL;
}

void rg_tar_section_fini(struct rg_tar_section *section)
{
    collecting_fini(section);
    free(section->data);
    free(section->blocks);
    *section = (struct rg_tar_section){.error = ""};
}

/* "__meta__", or something in a folder of such a name. */
static bool name_is_meta(const char *name)
{
    size_t first = strcspn(name, "/");
    return first >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + first - 2, "__", 2) == 0;
}

/* The key may begin behind any slash, the last one first, and goes to the first dot from there,
 * behind which no slash may come. That is the last part's first dot, unless this part begins with
 * it: then the folders before it are the key. */
bool rg_tar_name_split(const char *name, size_t *out_key_size, size_t *out_extension_size)
{
    size_t size = strlen(name), begin = size;
    if (name_is_meta(name)) {
        return false;
    }
    const char *last_slash = strrchr(name, '/');
    size_t last_part = last_slash != NULL ? (size_t)(last_slash - name) + 1 : 0;
    while (begin > 0) {
        begin = begin - 1;
        while (begin > 0 && name[begin - 1] != '/') {
            begin--;
        }
        size_t dot = begin + strcspn(name + begin, ".");
        if (dot > begin && dot < size && dot >= last_part) {
            *out_key_size = dot;
            *out_extension_size = size - dot - 1;
            return true;
        }
    }
    return false;
}

static int fail(struct rg_tar_section *section, const char *format, ...) RG_PRINTF(2, 3);

static int fail(struct rg_tar_section *section, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(section->error, sizeof(section->error), format, args);
    va_end(args);
    return -EBADMSG;
}

static int room_make(struct rg_tar_section *section, size_t more)
{
    if (section->room - section->size >= more) {
        return 0;
    }
    size_t room = RG_MAX(2 * section->room, section->size + more + ROOM_MIN);
    uint8_t *grown = realloc(section->data, room);
    if (grown == NULL) {
        return -ENOMEM;
    }
    section->data = grown;
    section->room = room;
    return 0;
}

/* The next block begins where the last one ends. */
static bool invariants(const struct rg_tar_section *section)
{
    const struct rg_tar_section_block *last =
        &section->blocks[RG_MAX(section->block_count, 1u) - 1];
    size_t end = section->block_count > 0 ? last->offset + last->size : 0;
    return end == section->block_begin && section->block_begin <= section->size &&
           section->size <= section->room && section->block_count <= section->block_room;
}

static int block_end(struct rg_tar_section *section)
{
    size_t size = section->size - section->block_begin;
    if (size == 0) {
        return 0;
    }
    if (section->block_count == section->block_room) {
        if (section->block_room > UINT32_MAX / 2) {
            return -EFBIG;
        }
        uint32_t room = RG_MAX(2 * section->block_room, (uint32_t)BLOCKS_MIN);
        void *grown = realloc(section->blocks, (size_t)room * sizeof(*section->blocks));
        if (grown == NULL) {
            return -ENOMEM;
        }
        section->blocks = grown;
        section->block_room = room;
    }
    section->blocks[section->block_count++] = (struct rg_tar_section_block){
        .offset = section->block_begin,
        .size = (uint32_t)size,
        .crc = rg_crc32c(0, section->data + section->block_begin, size),
    };
    section->block_begin = section->size;
    memset(section->encoder, 0, sizeof(*section->encoder));
    return 0;
}

static int sample_end(struct rg_tar_section *section)
{
    struct rg_tar_sample *sample = section->sample;
    if (sample->part_count == 0) {
        return 0;
    }
    int rc = room_make(section, RG_TAR_CODE_SIZE_MAX);
    if (rc < 0) {
        return rc;
    }
    section->size += rg_tar_encode(section->encoder, sample, section->data + section->size);
    sample->part_count = 0;
    section->sample_count++;
    return section->sample_count % RG_TAR_BLOCK_SAMPLES == 0 ? block_end(section) : 0;
}

static bool has_extension(const struct rg_tar_sample *sample, const char *extension, size_t size)
{
    for (uint32_t i = 0; i < sample->part_count; i++) {
        const struct rg_tar_part *part = &sample->parts[i];
        if (part->extension_size == size && memcmp(part->extension, extension, size) == 0) {
            return true;
        }
    }
    return false;
}

static char *extension_copy(struct rg_tar_section *section, const char *extension, size_t size)
{
    char *copy =
        section->extensions + (size_t)section->sample->part_count * RG_TAR_EXTENSION_SIZE_MAX;
    for (size_t i = 0; i < size; i++) {
        bool is_capital = extension[i] >= 'A' && extension[i] <= 'Z';
        copy[i] = (char)(is_capital ? extension[i] - 'A' + 'a' : extension[i]);
    }
    return copy;
}

static int part_add(struct rg_tar_section *section, const struct rg_tar_member *member,
                    const char *extension, size_t size)
{
    struct rg_tar_sample *sample = section->sample;
    if (sample->part_count == RG_TAR_MEMBERS_MAX) {
        return fail(section, "sample \"%.80s\" has more than %d members", sample->key,
                    RG_TAR_MEMBERS_MAX);
    }
    if (size > RG_TAR_EXTENSION_SIZE_MAX) {
        return fail(section, "the extension of \"%.80s\" has %zu bytes, above the limit of %d",
                    member->name, size, RG_TAR_EXTENSION_SIZE_MAX);
    }
    const char *copy = extension_copy(section, extension, size);
    if (has_extension(sample, copy, size)) {
        return fail(section, "sample \"%.80s\" has \"%.*s\" twice", sample->key, (int)size, copy);
    }
    sample->parts[sample->part_count++] = (struct rg_tar_part){
        .extension = copy,
        .extension_size = (uint32_t)size,
        .offset = member->offset - sample->offset,
        .size = member->size,
    };
    return 0;
}

int rg_tar_section_add(struct rg_tar_section *section, const struct rg_tar_member *member)
{
    struct rg_tar_sample *sample = section->sample;
    size_t key_size, extension_size;
    if (!rg_tar_name_split(member->name, &key_size, &extension_size)) {
        return 0;
    }
    bool is_next = sample->part_count > 0 && key_size == sample->key_size &&
                   memcmp(sample->key, member->name, key_size) == 0;
    if (!is_next) {
        int rc = sample_end(section);
        if (rc < 0) {
            return rc;
        }
        RG_ASSERT(key_size <= RG_TAR_KEY_SIZE_MAX);
        memcpy(sample->key, member->name, key_size);
        sample->key[key_size] = '\0';
        sample->key_size = (uint32_t)key_size;
        sample->offset = member->offset;
    }
    RG_VERIFY(invariants(section));
    return part_add(section, member, member->name + key_size + 1, extension_size);
}

int rg_tar_section_end(struct rg_tar_section *section)
{
    int rc = sample_end(section);
    rc = rc == 0 ? block_end(section) : rc;
    if (rc == 0) {
        RG_VERIFY(invariants(section));
        collecting_fini(section);
    }
    return rc;
}
