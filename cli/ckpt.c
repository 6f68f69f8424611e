/* `ringest ckpt`: which checkpoints lie below a prefix and whether they are complete, and the
 * removal of those that are not to be kept. */
#include "cli/ckpt_find.h"
#include "cli/ckpt_prune.h"
#include "cli/cli.h"
#include "cli/lister.h"
#include "cli/rm_unfinished.h"
#include "cli/session.h"

#include <inttypes.h>
#include <string.h>

/* Requests of the program's own that are out at once. */
#define REQUESTS_INFLIGHT 16

static void print_strings(const struct ckpt_strings *strings)
{
    printf("[");
    for (size_t i = 0; i < strings->count; i++) {
        printf("%s", i > 0 ? "," : "");
        cli_json_string(strings->items[i]);
    }
    printf("]");
}

static void print_json(const struct ckpt_search *search)
{
    printf("{\"checkpoints\":[");
    for (size_t i = 0; i < search->ckpt_count; i++) {
        const struct ckpt *ckpt = &search->ckpts[search->order[i]];
        char uri[sizeof("gs:///") + RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX];
        snprintf(uri, sizeof(uri), "gs://%s/%s", search->uri.bucket, ckpt->name);
        printf("%s{\"uri\":", i > 0 ? "," : "");
        cli_json_string(uri);
        printf(",\"kind\":\"%s\",\"step\":", ckpt_kind_text(ckpt->kind));
        if (ckpt->has_name) {
            printf("%" PRIu64, ckpt->what.step);
        } else {
            printf("null");
        }
        printf(",\"ranks\":%zu,\"size\":%" PRIu64 ",\"complete\":%s,\"missing\":", ckpt->rank_count,
               ckpt->size, ckpt->is_complete ? "true" : "false");
        print_strings(&ckpt->missing);
        printf(",\"foreign\":");
        print_strings(&ckpt->foreign);
        printf(",\"stray_count\":%zu,\"stray_size\":%" PRIu64 ",\"updated\":", ckpt->stray_count,
               ckpt->stray_size);
        cli_json_string_or_null(ckpt->updated[0] != '\0' ? ckpt->updated : NULL);
        printf("}");
    }
    printf("]}\n");
}

static void print_text(const struct ckpt_search *search)
{
    char size[32], step[24];
    for (size_t i = 0; i < search->ckpt_count; i++) {
        const struct ckpt *ckpt = &search->ckpts[search->order[i]];
        snprintf(step, sizeof(step), ckpt->has_name ? "%" PRIu64 : "-", ckpt->what.step);
        printf("%10s  %-11s  %5zu  %10s  %-10s  %-24s  gs://%s/%s\n", step,
               ckpt_kind_text(ckpt->kind), ckpt->rank_count, cli_format_size(ckpt->size, size),
               ckpt->kind == CKPT_UNKNOWN ? "unknown"
               : ckpt->is_complete        ? "complete"
                                          : "incomplete",
               ckpt->updated, search->uri.bucket, cli_shown(ckpt->name));
        for (size_t j = 0; j < ckpt->missing.count; j++) {
            printf("%12smissing: %s\n", "", cli_shown(ckpt->missing.items[j]));
        }
        for (size_t j = 0; j < ckpt->foreign.count; j++) {
            printf("%12snot part of it: %s\n", "", cli_shown(ckpt->foreign.items[j]));
        }
        if (ckpt->stray_count > 0) {
            printf("%12sof incomplete saves: %zu object%s, %s\n", "", ckpt->stray_count,
                   ckpt->stray_count == 1 ? "" : "s", cli_format_size(ckpt->stray_size, size));
        }
    }
}

static int ckpts_show(struct ckpt_search *search, bool json)
{
    int status = ckpt_search_run(search);
    if (status != CLI_DONE) {
        return status;
    }
    if (search->ckpt_count == 0 && !json) {
        return search->uri.name[0] == '\0'
                   ? cli_fail("no checkpoint in gs://%s", search->uri.bucket)
                   : cli_fail("no checkpoint in gs://%s begins with \"%s\"", search->uri.bucket,
                              search->uri.name);
    }
    json ? print_json(search) : print_text(search);
    return cli_output_end(CLI_DONE);
}

enum prune_option_number {
    OPTION_KEEP_LAST = CLI_OPTION_FIRST,
    OPTION_KEEP_EVERY,
    OPTION_DRY_RUN,
    OPTION_OLDER_THAN,
    OPTION_ALL_UPLOADS
};

/* Takes an option of `prune`. False after saying why not. */
static bool prune_option(struct prune_options *prune, int option, const char *argument)
{
    switch (option) {
    case OPTION_KEEP_LAST:
        return cli_parse_u64("--keep-last", argument, 1, UINT32_MAX, &prune->keep_last);
    case OPTION_KEEP_EVERY:
        return cli_parse_u64("--keep-every", argument, 1, INT64_MAX, &prune->keep_every);
    case OPTION_OLDER_THAN:
        return unfinished_parse_age("--older-than", argument, &prune->older_than_s);
    case OPTION_DRY_RUN:
        prune->dry_run = true;
        return true;
    default:
        prune->all_uploads = true;
        return true;
    }
}

static int ckpt_run(int argc, char **argv)
{
    static const struct option options[] = {
        CLI_CONNECTION_OPTIONS,
        {"keep-last", required_argument, NULL, OPTION_KEEP_LAST},
        {"keep-every", required_argument, NULL, OPTION_KEEP_EVERY},
        {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
        {"older-than", required_argument, NULL, OPTION_OLDER_THAN},
        {"all-uploads", no_argument, NULL, OPTION_ALL_UPLOADS},
        {0}};
    struct cli_connection connection = {.connections = LISTER_REQUESTS};
    struct prune_options prune = {.older_than_s = 86400};
    struct cli_session session;
    struct ckpt_search search = {.session = &session};
    bool json = false, is_prune_option = false, ok;
    int option;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (cli_connection_option(&connection, option, optarg, &ok)) {
            if (!ok) {
                return CLI_USAGE;
            }
        } else if (option == CLI_OPTION_JSON) {
            json = true;
        } else if (option >= CLI_OPTION_FIRST) {
            is_prune_option = true;
            if (!prune_option(&prune, option, optarg)) {
                return CLI_USAGE;
            }
        } else {
            return option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
        }
    }
    bool is_prune = argc - optind == 2 && strcmp(argv[optind], "prune") == 0;
    if (argc - optind != 2 || (!is_prune && strcmp(argv[optind], "ls") != 0)) {
        return cli_usage("needs ls gs://BUCKET/PREFIX, or prune gs://BUCKET/PREFIX "
                         "--keep-last N");
    }
    if (is_prune != is_prune_option || (is_prune && prune.keep_last == 0)) {
        return is_prune ? cli_usage("prune needs --keep-last N")
                        : cli_usage("--keep-last, --keep-every, --older-than, --dry-run and "
                                    "--all-uploads are for prune");
    }
    if (!cli_parse_uri(argv[optind + 1], &search.uri) || (is_prune && !prune_place(&search.uri))) {
        return CLI_USAGE;
    }
    prune.json = json;
    int status = cli_session_open(&session, &connection, REQUESTS_INFLIGHT);
    if (status == CLI_DONE) {
        status = is_prune ? ckpt_prune(&search, &prune) : ckpts_show(&search, json);
        ckpt_search_free(&search);
        cli_session_close(&session);
    }
    return status;
}

const struct cli_command cli_ckpt = {
    .name = "ckpt",
    .arguments = "ls|prune gs://BUCKET/PREFIX [OPTIONS]",
    .summary = "list checkpoints, remove old ones",
    .help =
        "Options of prune:\n"
        "  --keep-last N      keep the last N complete steps of each series; required\n"
        "  --keep-every N     also keep steps that are multiples of N\n"
        "  --dry-run          only say what would be removed, and why the rest is kept\n"
        "  --older-than AGE   remove data and uploads of unfinished saves only if they are older;\n"
        "                     seconds, or a number with s, m, h or d; default: 1d\n"
        "  --all-uploads      also end unfinished uploads that another program may have begun\n"
        "Options:\n"
        "  --json             one JSON object\n" CLI_CONNECTION_HELP
        "\nls prints for each checkpoint below the prefix: step, kind, ranks, size, whether it is\n"
        "complete, time of the last change, and where it is. Kinds of files: torch (.pt .pth\n"
        ".ckpt), safetensors. Kinds of folders: dcp (torch.distributed.checkpoint, with\n"
        ".metadata), huggingface (Trainer), deepspeed, unknown.\n"
        "\nA prefix is literal: gs://b/run also stands for what is in gs://b/run2/. End it with\n"
        "\"/\" for one folder. prune refuses a prefix that stands for several.\n"
        "\nprune removes complete checkpoints, but not the last ones. It removes only what is\n"
        "certainly a checkpoint: names that consist of a step (N.pt, step-N.pt, global_stepN,\n"
        "checkpoint-N, epoch=E-step=N.ckpt), and whole folders that hold nothing else.\n"
        "\nExamples:\n"
        "  ringest ckpt ls gs://bucket/run/\n"
        "  ringest ckpt ls gs://bucket/run/ --json | jq '.checkpoints[] | select(.complete)'\n"
        "  ringest ckpt prune gs://bucket/run/ --keep-last 3 --keep-every 1000 --dry-run\n",
    .run = ckpt_run,
};
