/* How listed objects are printed: see object_text.h. */
#include "cli/object_text.h"

#include <inttypes.h>

#define BUFFER_SIZE RG_KIB(256)
/* Columns before the name with `is_long`. */
#define LONG_WIDTH 60

void object_text_begin(void)
{
    static char buffer[BUFFER_SIZE];
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
}

void object_print_json(const struct rg_object *object)
{
    fputs_unlocked("{\"name\":", stdout);
    cli_json_string(object->name);
    printf(",\"size\":%" PRIu64 ",\"generation\":\"%" PRId64 "\",\"crc32c\":", object->size,
           object->generation);
    if (object->has_crc32c) {
        printf("\"%08" PRIx32 "\"", object->crc32c);
    } else {
        fputs_unlocked("null", stdout);
    }
    fputs_unlocked(",\"updated\":", stdout);
    cli_json_string_or_null(object->updated);
    putchar_unlocked('}');
}

void object_print_line(const char *bucket, const struct rg_object *object, bool is_long,
                       bool version)
{
    if (is_long) {
        printf("%12" PRIu64 "  %-24s  %" PRId64 "  ", object->size,
               object->updated != NULL ? object->updated : "", object->generation);
    }
    fputs_unlocked("gs://", stdout);
    fputs_unlocked(bucket, stdout);
    putchar_unlocked('/');
    fputs_unlocked(object->name, stdout);
    if (version) {
        printf("#%" PRId64, object->generation);
    }
    putchar_unlocked('\n');
}

void object_print_prefix(const char *bucket, const char *prefix, bool is_long)
{
    printf("%*sgs://%s/%s\n", is_long ? LONG_WIDTH : 0, "", bucket, prefix);
}
