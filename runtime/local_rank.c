/* The local rank in the environment: see local_rank.h. */
#include "runtime/local_rank.h"

#include "runtime/log.h"
#include "runtime/share.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static const char *value_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? text : NULL;
}

/* A whole text that is a number; false otherwise. */
static bool number_parse(const char *text, uint32_t *out)
{
    char *end;
    errno = 0;
    unsigned long value = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    if (!isdigit((unsigned char)*text) || *end != '\0' || errno != 0 || value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool is_possible(uint32_t rank, uint32_t size)
{
    return rank < size && size <= RG_LOCAL_RANKS_MAX;
}

/* For people who ask why a process is alone: the first that makes no rank. */
static void put_aside(struct rg_local_rank *rank, const char *name, const char *from, bool lacks)
{
    if (rank->aside == NULL) {
        rank->aside = name;
        rank->aside_from = from;
        rank->lacks = lacks;
    }
}

/* One pair of variables. 1: found; 0: not there, or half of it; -EINVAL: nonsense. */
static int pair_read(struct rg_local_rank *out_rank, const char *rank_name, const char *size_name)
{
    const char *rank_text = value_of(rank_name), *size_text = value_of(size_name);
    uint32_t rank, size;
    if (rank_text == NULL || size_text == NULL) {
        if (rank_text != NULL) {
            put_aside(out_rank, rank_name, size_name, true);
        } else if (size_text != NULL) {
            put_aside(out_rank, size_name, rank_name, true);
        }
        return 0;
    }
    if (!number_parse(rank_text, &rank) || !number_parse(size_text, &size) ||
        !is_possible(rank, size)) {
        put_aside(out_rank, rank_name, size_name, false);
        return -EINVAL;
    }
    *out_rank = (struct rg_local_rank){.rank = rank, .size = size, .variable = rank_name};
    return 1;
}

/* The entry of a list such as "8(x3),4" for a node; 0: there is none, or it is no such list. */
static uint32_t slurm_tasks(const char *list, uint32_t node)
{
    uint64_t first = 0;
    while (isdigit((unsigned char)*list)) {
        char *at;
        unsigned long tasks = strtoul(list, &at, 10), times = 1;
        if (at[0] == '(' && at[1] == 'x' && isdigit((unsigned char)at[2])) {
            times = strtoul(at + 2, &at, 10);
            if (*at++ != ')') {
                return 0;
            }
        }
        if (node < first + RG_MIN(times, UINT32_MAX)) {
            return tasks <= RG_LOCAL_RANKS_MAX ? (uint32_t)tasks : 0;
        }
        first += RG_MIN(times, UINT32_MAX);
        list = *at == ',' ? at + 1 : "";
    }
    return 0;
}

static int slurm_read(struct rg_local_rank *out_rank)
{
    const char *rank_text = value_of("SLURM_LOCALID"), *node_text = value_of("SLURM_NODEID");
    static const char *const lists[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE",
                                        "SLURM_TASKS_PER_NODE"};
    const char *list = NULL, *list_name = lists[0];
    for (size_t i = 0; i < RG_ARRAY_LEN(lists) && list == NULL; i++) {
        list = value_of(lists[i]);
        list_name = list != NULL ? lists[i] : list_name;
    }
    uint32_t rank, node = 0;
    bool is_step = value_of("SLURM_STEP_NUM_TASKS") != NULL;
    if (rank_text == NULL || list == NULL || !is_step) {
        if (rank_text != NULL) {
            put_aside(out_rank, "SLURM_LOCALID", is_step ? list_name : "SLURM_STEP_NUM_TASKS",
                      true);
        }
        return 0;
    }
    if (!number_parse(rank_text, &rank) || (node_text != NULL && !number_parse(node_text, &node))) {
        put_aside(out_rank, "SLURM_LOCALID", list_name, false);
        return -EINVAL;
    }
    uint32_t size = slurm_tasks(list, node);
    size = size != 0 ? size : slurm_tasks(list, 0); /* one number for all nodes */
    if (!is_possible(rank, size)) {
        put_aside(out_rank, "SLURM_LOCALID", list_name, false);
        return -EINVAL;
    }
    *out_rank = (struct rg_local_rank){.rank = rank, .size = size, .variable = "SLURM_LOCALID"};
    return 1;
}

static void tell_nonsense(enum rg_log_level level, const char *rank_name, const char *size_name)
{
    const char *rank = value_of(rank_name), *size = value_of(size_name);
    rg_log(level, "%s=%s with %s=%s is no rank of this host", rank_name, rank != NULL ? rank : "",
           size_name, size != NULL ? size : "");
}

int rg_local_rank_find(struct rg_local_rank *out_rank)
{
    static const char *const pairs[][2] = {
        {"RINGEST_LOCAL_RANK", "RINGEST_LOCAL_WORLD_SIZE"},
        {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    };
    *out_rank = (struct rg_local_rank){.size = 1, .variable = ""};
    bool is_half = (value_of(pairs[0][0]) == NULL) != (value_of(pairs[0][1]) == NULL);
    for (size_t i = 0; i < RG_ARRAY_LEN(pairs); i++) {
        int rc = pair_read(out_rank, pairs[i][0], pairs[i][1]);
        bool is_users = i == 0;
        if (rc > 0) {
            return 0;
        }
        if (rc < 0 || (is_users && is_half)) {
            tell_nonsense(is_users ? RG_LOG_ERROR : RG_LOG_WARN, pairs[i][0], pairs[i][1]);
        }
        if (is_users && (rc < 0 || is_half)) {
            return -EINVAL;
        }
    }
    if (slurm_read(out_rank) < 0) {
        tell_nonsense(RG_LOG_WARN, "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE");
    }
    return 0;
}
