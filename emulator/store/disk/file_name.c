/* Object names to paths and back; see file_name.h for the rules. */
#include "emulator/store/disk/file_name.h"

#include "emulator/wire/text.h"

#include <errno.h>

/* A component is split behind so many bytes. "%_" and the rest of a character still fit 255
 * bytes. */
#define PIECE_SIZE_MAX 200

struct path_writer {
    char *path;
    size_t size;
    size_t piece_start;
};

static void put(struct path_writer *writer, const char *data, size_t size)
{
    RG_ASSERT(writer->size + size < RG_FILE_PATH_MAX - sizeof(RG_FILE_NAME_ASIDE));
    memcpy(writer->path + writer->size, data, size);
    writer->size += size;
}

static void put_byte(struct path_writer *writer, uint8_t byte, bool escaped)
{
    static const char digits[] = "0123456789ABCDEF";
    char escape[3] = {'%', digits[byte >> 4], digits[byte & 15]};
    char plain = (char)byte;
    put(writer, escaped ? escape : &plain, escaped ? sizeof(escape) : 1);
}

static bool first_dot_escaped(struct rg_h1_slice component, bool first_component)
{
    return rg_text_equals(component, ".") || rg_text_equals(component, "..") ||
           (first_component && rg_text_starts_with(component, rg_text_slice(RG_FILE_NAME_PRIVATE)));
}

static void put_component(struct path_writer *writer, struct rg_h1_slice component,
                          bool first_component)
{
    bool escape_dot = first_dot_escaped(component, first_component);
    writer->piece_start = writer->size;
    if (component.size == 0) {
        put(writer, "%-", 2);
    }
    for (uint32_t i = 0; i < component.size; i++) {
        uint8_t byte = (uint8_t)component.data[i];
        bool continues_character = (byte & 0xc0) == 0x80;
        if (writer->size - writer->piece_start >= PIECE_SIZE_MAX && !continues_character) {
            put(writer, "%_/", 3);
            writer->piece_start = writer->size;
            escape_dot = true;
        }
        bool starts_piece = writer->size == writer->piece_start;
        put_byte(writer, byte,
                 byte < 0x20 || byte == 0x7f || byte == '%' ||
                     (byte == '.' && starts_piece && escape_dot));
    }
}

size_t rg_file_name_encode(struct rg_h1_slice name, char path[RG_FILE_PATH_MAX])
{
    struct path_writer writer = {.path = path};
    uint32_t start = 0;
    for (uint32_t i = 0; i <= name.size; i++) {
        if (i == name.size || name.data[i] == '/') {
            put_component(&writer, (struct rg_h1_slice){name.data + start, i - start}, start == 0);
            start = i + 1;
            if (i < name.size) {
                put(&writer, "/", 1);
            }
        }
    }
    path[writer.size] = '\0';
    return writer.size;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A name in the making. Bytes that do not fit are counted but not stored. */
struct name_builder {
    char *data;
    size_t size;
};

static void add_byte(struct name_builder *name, char byte)
{
    if (name->size < RG_STORE_NAME_SIZE_MAX) {
        name->data[name->size] = byte;
    }
    name->size++;
}

/* Undoes one escape at `at`. Returns how many bytes of the path it took; 0: it is no escape.
 * Whether an escape stands where it may is not checked here: the path is compared with the one
 * that the name would get. */
static size_t undo_escape(const char *at, struct name_builder *name)
{
    if (at[1] == '-') {
        return 2;
    }
    if (at[1] == '_' && at[2] == '/') {
        return 3;
    }
    if (hex_value(at[1]) < 0 || hex_value(at[2]) < 0) {
        return 0;
    }
    add_byte(name, (char)(hex_value(at[1]) << 4 | hex_value(at[2])));
    return 3;
}

int rg_file_name_decode(const char *path, char name[RG_STORE_NAME_SIZE_MAX])
{
    size_t path_size = strlen(path);
    size_t aside_size = strlen(RG_FILE_NAME_ASIDE);
    if (path_size > aside_size &&
        memcmp(path + path_size - aside_size, RG_FILE_NAME_ASIDE, aside_size) == 0) {
        path_size -= aside_size;
    }
    struct name_builder builder = {.data = name};
    for (size_t at = 0; at < path_size;) {
        size_t taken = 1;
        if (path[at] == '%') {
            taken = undo_escape(path + at, &builder);
        } else {
            add_byte(&builder, path[at]);
        }
        if (taken == 0 || builder.size > RG_STORE_NAME_SIZE_MAX) {
            return -EINVAL;
        }
        at += taken;
    }
    struct rg_h1_slice slice = {name, (uint32_t)builder.size};
    char canonical[RG_FILE_PATH_MAX];
    if (!rg_store_object_name_valid(slice) || rg_file_name_encode(slice, canonical) != path_size ||
        memcmp(canonical, path, path_size) != 0) {
        return -EINVAL;
    }
    return (int)builder.size;
}
