/* `ringest hash`: CRC32C and MD5 of objects, as the service has them, and of files, as they are. */
#include "cli/cli.h"
#include "cli/expand.h"
#include "cli/hash_text.h"
#include "cli/local.h"
#include "cli/session.h"
#include "cli/stat.h"
#include "emulator/wire/md5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As `gcloud storage hash` prints it, whose keys stand in the order of the alphabet. NULL: there is
 * none. */
static void print_hashes(const char *url, const char *crc32c, const char *md5, bool json, bool hex)
{
    const char *format = hex ? "hex" : "base64";
    if (json) {
        printf("{\"crc32c_hash\":");
        cli_json_string_or_null(crc32c);
        printf(",\"digest_format\":\"%s\",\"md5_hash\":", format);
        cli_json_string_or_null(md5);
        printf(",\"url\":");
        cli_json_string(url);
        printf("}\n");
        return;
    }
    printf("---\n");
    if (crc32c != NULL) {
        printf("crc32c_hash: %s\n", crc32c);
    }
    printf("digest_format: %s\n", format);
    if (md5 != NULL) {
        printf("md5_hash: %s\n", md5);
    }
    printf("url: %s\n", cli_shown(url));
}

static void print_object(const struct rg_object_info *info, bool json, bool hex)
{
    char crc32c[HASH_TEXT_SIZE], md5[HASH_TEXT_SIZE];
    char url[RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX + 8];
    snprintf(url, sizeof(url), "gs://%s/%s", info->bucket, info->object.name);
    print_hashes(
        url, info->object.has_crc32c ? hash_text_crc32c(info->object.crc32c, hex, crc32c) : NULL,
        hash_text_md5(info->md5, hex, md5), json, hex);
}

static int file_read(int fd, char *block, uint32_t *out_crc32c, uint8_t out_md5[RG_MD5_SIZE])
{
    struct rg_md5 md5;
    rg_md5_init(&md5);
    uint32_t crc32c = 0;
    int64_t got;
    for (uint64_t offset = 0;
         (got = local_read(fd, block, LOCAL_BLOCK_SIZE, offset)) > 0 && !cli_interrupted();
         offset += (uint64_t)got) {
        crc32c = rg_crc32c(crc32c, block, (size_t)got);
        rg_md5_update(&md5, block, (size_t)got);
    }
    rg_md5_final(&md5, out_md5);
    *out_crc32c = crc32c;
    return (int)RG_MIN(got, INT64_C(0));
}

static int hash_file(const char *path, bool json, bool hex)
{
    char crc32c_text[HASH_TEXT_SIZE], md5_text[HASH_TEXT_SIZE];
    char *block = malloc(LOCAL_BLOCK_SIZE);
    uint8_t md5[RG_MD5_SIZE];
    uint32_t crc32c = 0;
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc = block == NULL ? -ENOMEM : fd < 0 || fstat(fd, &stat) < 0 ? -errno : 0;
    if (rc == 0 && !S_ISREG(stat.st_mode)) {
        rc = S_ISDIR(stat.st_mode) ? -EISDIR : -EINVAL;
    }
    rc = rc == 0 ? file_read(fd, block, &crc32c, md5) : rc;
    if (fd >= 0) {
        close(fd);
    }
    free(block);
    if (rc < 0) {
        return cli_fail("%s: %s", path,
                        rc == -EISDIR   ? "is a folder"
                        : rc == -EINVAL ? "not a regular file"
                                        : local_error_text(rc));
    }
    print_hashes(path, hash_text_crc32c(crc32c, hex, crc32c_text),
                 hash_text_digest(md5, hex, md5_text), json, hex);
    return CLI_DONE;
}

/* Arguments in their order: objects that follow each other are asked for together. */
static int hash_all(struct cli_session *session, const struct expanded *places, bool json, bool hex)
{
    int status = CLI_DONE;
    for (int i = 0; i < places->count;) {
        int end = i;
        while (end < places->count && cli_is_uri(places->places[end])) {
            end++;
        }
        int one = end > i
                      ? stat_objects(session, &places->places[i], end - i, json, hex, print_object)
                      : hash_file(places->places[end++], json, hex);
        status = one != CLI_DONE ? one : status;
        i = end;
    }
    return status;
}

static int places_check(char *const *places, int count, bool *out_has_object)
{
    struct cli_uri uri;
    *out_has_object = false;
    for (int i = 0; i < count; i++) {
        if (!cli_is_uri(places[i])) {
            continue;
        }
        if (!cli_parse_uri(places[i], &uri)) {
            return CLI_USAGE;
        }
        if (uri.name[0] == '\0') {
            return cli_usage("needs objects or files, got the bucket \"%s\"", places[i]);
        }
        *out_has_object = true;
    }
    return count > 0 ? CLI_DONE : cli_usage("needs an object, gs://BUCKET/OBJECT, or a file");
}

static int hash_run(int argc, char **argv)
{
    enum { OPTION_HEX = CLI_OPTION_FIRST, OPTION_LITERAL };
    static const struct option options[] = {CLI_CONNECTION_OPTIONS,
                                            {"hex", no_argument, NULL, OPTION_HEX},
                                            {"literal", no_argument, NULL, OPTION_LITERAL},
                                            {0}};
    struct cli_connection connection = {.connections = STAT_REQUESTS};
    bool ok, json = false, hex = false, literal = false, has_object;
    int option;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            json = true;
        } else if (option == OPTION_HEX) {
            hex = true;
        } else if (option == OPTION_LITERAL) {
            literal = true;
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    int status = places_check(&argv[optind], argc - optind, &has_object);
    /* Files need no server. */
    struct cli_session session = {0};
    if (status == CLI_DONE && has_object) {
        status = cli_session_open(&session, &connection, STAT_REQUESTS);
    }
    struct expanded places = {0};
    if (status == CLI_DONE) {
        status = expand_places(&session, &argv[optind], argc - optind, literal, &places);
    }
    if (status == CLI_DONE) {
        status = hash_all(&session, &places, json, hex);
    }
    expanded_free(&places);
    if (session.runtime != NULL) {
        cli_session_close(&session);
    }
    return cli_output_end(status);
}

const struct cli_command cli_hash = {
    .name = "hash",
    .arguments = "PATH|gs://BUCKET/OBJECT... [OPTIONS]",
    .summary = "show CRC32C and MD5 of objects and files",
    .help = "Options:\n"
            "  --hex              hexadecimal digits; default: base64\n"
            "  --literal          * ? [ ] are characters of names, not wildcards\n"
            "  --json             one JSON object in a line for each\n" CLI_CONNECTION_HELP
            "\nObjects are not read: the service tells their hashes. Those that were composed of "
            "parts\n"
            "have no MD5. Files are read.\n"
            "\nExamples:\n"
            "  ringest hash model.pt gs://bucket/model.pt\n"
            "  ringest hash --hex 'gs://bucket/*.tar'\n",
    .run = hash_run,
};
