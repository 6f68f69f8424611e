/* What users of gsutil and gcloud storage type: see habits.h. */
#include "cli/habits.h"

#include "runtime/base.h"

#include <string.h>

static const struct {
    const char *name, *advice;
} command_habits[] = {
    {"copy", "cp"},          {"download", "cp"}, {"get", "cp"},    {"put", "cp"},  {"upload", "cp"},
    {"sync", "rsync"},       {"delete", "rm"},   {"remove", "rm"}, {"list", "ls"}, {"dir", "ls"},
    {"describe", "stat"},    {"info", "stat"},   {"head", "stat"}, {"move", "mv"}, {"rename", "mv"},
    {"sign-url", "signurl"}, {"rewrite", "cp"},
};

static const char *const fronts[] = {"gcloud", "gsutil", "objects", "storage"};

#define ALWAYS_AT_ONCE "; many requests are always made at once, --concurrency says how many"
#define ALWAYS_CHECKED "; sizes and CRC32C are always compared"
#define ALWAYS_GOES_ON "; one that fails never keeps the others from being copied"
#define NO_LINKS "; symbolic links are left out unless --follow-symlinks is given"
#define NO_ATTRIBUTES "; modes, owners, times and access control lists are not copied"
#define NO_GZIP "; nothing is compressed: use gzip, and --content-encoding gzip"
#define NO_VERSIONS                                                                                \
    "; old versions are listed by `ringest ls -a`, and read by Client.get(uri, generation=...) "   \
    "in Python"
#define OPTION_PAYER "; did you mean --option user_project=PROJECT?"
#define DID_YOU_MEAN(text) "; did you mean " text "?"

/* Names of commands, with a space behind each; "" for all. */
static const struct {
    const char *commands, *options, *text;
} option_habits[] = {
    {"rsync ", "-d ", DID_YOU_MEAN("--delete")},
    {"rsync ", "-x ",
     DID_YOU_MEAN("--exclude, whose patterns have * and ? in place of regular expressions")},
    {"rsync ", "-c --checksums-only ", ALWAYS_CHECKED},
    {"rsync ", "-u --skip-if-dest-has-newer-mtime ", "; times are not compared"},
    {"rsync ", "-i --no-clobber ", DID_YOU_MEAN("`ringest cp -r -n`")},
    {"cp mv rsync ", "-C --continue-on-error ", ALWAYS_GOES_ON},
    {"cp mv ", "-c ", ALWAYS_GOES_ON},
    {"cp mv rsync ", "-e --ignore-symlinks ", NO_LINKS},
    {"cp mv rsync ", "-p -P -a --preserve-acl --preserve-posix --canned-acl --predefined-acl ",
     NO_ATTRIBUTES},
    {"cp mv rsync ",
     "-j -J -z -Z --gzip-in-flight --gzip-in-flight-all --gzip-local --gzip-local-all ", NO_GZIP},
    {"cp ", "-I --read-paths-from-stdin ", DID_YOU_MEAN("xargs ringest cp")},
    {"cp ", "-A --all-versions ", NO_VERSIONS},
    {"rm ", "-I --read-paths-from-stdin ", DID_YOU_MEAN("xargs ringest rm")},
    {"rm ", "-a --all-versions ", NO_VERSIONS},
    {"rm ", "-f --continue-on-error ",
     "; one that fails never keeps the others from being removed"},
    {"ls ", "-L --full ",
     DID_YOU_MEAN("`ringest stat`, which shows all that is stored about an object, or -l")},
    {"ls ", "-e --etag ", DID_YOU_MEAN("`ringest stat`, which shows the ETag")},
    {"ls ", "-b --buckets ", "; `gcloud storage buckets describe` shows a bucket"},
    {"ls ", "-d ", "; without \"/\" at its end, what is named is shown, and not what is in it"},
    {"ls du ", "--readable-sizes ", DID_YOU_MEAN("--human-readable")},
    {"ls du ", "--all-versions ", DID_YOU_MEAN("--versions")},
    {"ls stat hash ", "--format ", DID_YOU_MEAN("--json")},
    {"du ", "-e -x -X --exclude-name-pattern ", "; give a narrower prefix or a pattern"},
    {"cat ", "-r ", DID_YOU_MEAN("--range")},
    {"hash ", "-c -m --skip-md5 --skip-crc32c ",
     "; it computes the CRC32C, and `ringest stat` shows an object's MD5"},
    {"cp mv rsync rm ", "-m ", ALWAYS_AT_ONCE},
    {"", "--billing-project ", OPTION_PAYER},
    {"", "--additional-headers ", "; RINGEST_HEADERS has fields that are added to every request"},
    {"", "--encryption-key --decryption-keys ",
     "; customer-supplied keys are not supported, `gcloud storage` has them"},
    {"", "--project ", "; buckets are found without a project"},
};

static bool has_word(const char *words, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = words; *at != '\0'; at = strchr(at, ' ') + 1) {
        if (strncmp(at, word, size) == 0 && at[size] == ' ') {
            return true;
        }
    }
    return false;
}

const char *habit_command(const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(command_habits); i++) {
        if (strcmp(name, command_habits[i].name) == 0) {
            return command_habits[i].advice;
        }
    }
    return NULL;
}

bool habit_is_front(const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(fronts); i++) {
        if (strcmp(name, fronts[i]) == 0) {
            return true;
        }
    }
    return false;
}

const char *habit_option(const char *command, const char *option)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(option_habits); i++) {
        const char *commands = option_habits[i].commands;
        if ((*commands == '\0' || has_word(commands, command)) &&
            has_word(option_habits[i].options, option)) {
            return option_habits[i].text;
        }
    }
    return NULL;
}
