/* How listed objects are printed: see object_text.h. */
#include "cli/object_text.h"

#include "cli/cli.h"
#include "cli/hash_text.h"

#include <inttypes.h>

#define BUFFER_SIZE RG_KIB(256)
/* Columns before the name with more than the name. */
#define LONG_WIDTH 60

void object_text_begin(void)
{
    static char buffer[BUFFER_SIZE];
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
}

void object_print_json(const struct rg_object *object, bool hex)
{
    fputs_unlocked("{\"name\":", stdout);
    cli_json_string(object->name);
    printf(",\"size\":%" PRIu64 ",\"generation\":\"%" PRId64 "\",\"crc32c\":", object->size,
           object->generation);
    if (object->has_crc32c) {
        char text[HASH_TEXT_SIZE];
        printf("\"%s\"", hash_text_crc32c(object->crc32c, hex, text));
    } else {
        fputs_unlocked("null", stdout);
    }
    fputs_unlocked(",\"updated\":", stdout);
    cli_json_string_or_null(object->updated);
    putchar_unlocked('}');
}

void object_print_line(const char *bucket, const struct rg_object *object,
                       enum object_detail detail, bool version)
{
    char size[CLI_QUANTITY_SIZE];
    if (detail == OBJECT_LONG) {
        printf("%12" PRIu64, object->size);
    } else if (detail == OBJECT_LONG_HUMAN) {
        printf("%12s", cli_format_size(object->size, size));
    }
    if (detail != OBJECT_NAME) {
        printf("  %-24s  %" PRId64 "  ", object->updated != NULL ? object->updated : "",
               object->generation);
    }
    fputs_unlocked("gs://", stdout);
    fputs_unlocked(bucket, stdout);
    putchar_unlocked('/');
    fputs_unlocked(cli_shown(object->name), stdout);
    if (version) {
        printf("#%" PRId64, object->generation);
    }
    putchar_unlocked('\n');
}

void object_print_prefix(const char *bucket, const char *prefix, enum object_detail detail)
{
    printf("%*sgs://%s/%s\n", detail != OBJECT_NAME ? LONG_WIDTH : 0, "", bucket,
           cli_shown(prefix));
}
