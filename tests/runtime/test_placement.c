/* Who runs where on GPU machines of Google Cloud, as docs/internals/placement.md shows it.
 *
 * `--print` prints the text that stands there. */
#include "runtime/topology.h"

#include "tests/support/test.h"

#include <stdarg.h>

/* The numbers of CPUs and GPUs, and of the network cards of A3 Mega and A3 Ultra, are from Google's
 * documentation, which docs/internals/placement.md names. Assumed are: one card for A2 and five for
 * A3 High, which their bandwidths suggest; two sockets of one NUMA node each, two CPUs a core,
 * which Linux numbers first threads first; half of the GPUs on each node, in order; of the network
 * cards the first on node 0, those of the GPUs beside them, and of A3 Ultra's two for everything
 * else one on each node. */
static const struct machine {
    const char *name, *synthetic, *nics, *gpus;
    uint32_t cpus;
} machines[] = {
    {"a2-highgpu-8g", "package:2 numa:1 core:24 pu:2(indexes=2*48:48*1)", "0", "0,0,0,0,1,1,1,1",
     96},
    {"a2-megagpu-16g", "package:2 numa:1 core:24 pu:2(indexes=2*48:48*1)", "0",
     "0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1", 96},
    {"a3-highgpu-8g", "package:2 numa:1 core:52 pu:2(indexes=2*104:104*1)", "0,0,0,1,1",
     "0,0,0,0,1,1,1,1", 208},
    {"a3-megagpu-8g", "package:2 numa:1 core:52 pu:2(indexes=2*104:104*1)", "0,0,0,0,0,1,1,1,1",
     "0,0,0,0,1,1,1,1", 208},
    {"a3-ultragpu-8g", "package:2 numa:1 core:56 pu:2(indexes=2*112:112*1)", "0,1,0,0,0,0,1,1,1,1",
     "0,0,0,0,1,1,1,1", 224},
};
static const uint32_t rank_counts[] = {1, 8, 16}, worker_counts[] = {0, 4, 12};

#define LOOPS_MAX 16
#define CPUS_MAX 224

static char text[65536];
static size_t text_size;

static void add(const char *format, ...) RG_PRINTF(1, 2);
static void add(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_size += (size_t)vsnprintf(text + text_size, sizeof(text) - text_size, format, args);
    va_end(args);
    RG_CHECK(text_size < sizeof(text));
}

/* The loops of one process. */
struct process {
    struct rg_placement loops[LOOPS_MAX];
    uint32_t loop_count;
    char cpus[64]; /* of its rank */
};

static void process_plan(struct process *process, const struct machine *machine,
                         struct rg_local_rank local)
{
    struct rg_topology_model model = {
        .synthetic = machine->synthetic, .nic_nodes = machine->nics, .gpu_nodes = machine->gpus};
    struct rg_topology *topology;
    char told[1024];
    local.variable = "";
    RG_CHECK_EQ(rg_topology_open(&topology, &local, &model), 0);
    int count = rg_topology_plan(topology, RG_NUMA_AUTO, 0, process->loops, LOOPS_MAX);
    RG_CHECK(count > 0);
    process->loop_count = (uint32_t)count;
    (void)rg_topology_describe(topology, process->loops, process->loop_count, told, sizeof(told));
    const char *cpus = strstr(told, "CPUs\t");
    RG_CHECK(cpus != NULL);
    snprintf(process->cpus, sizeof(process->cpus), "%.*s", (int)strcspn(cpus + 5, ":"), cpus + 5);
    rg_topology_close(topology);
}

static void loops_add(const struct process *process)
{
    for (uint32_t i = 0; i < process->loop_count; i++) {
        add("%s%d", i > 0 ? " " : "", process->loops[i].cpu);
    }
}

/* One line for each rank: its node, its CPUs, and where its loops are. */
static void ranks_add(const struct machine *machine, uint32_t rank_count)
{
    add("%s, %u rank%s\n", machine->name, rank_count, rank_count > 1 ? "s" : "");
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        struct process process;
        process_plan(&process, machine, (struct rg_local_rank){.rank = rank, .size = rank_count});
        add("  rank %-2u  CPUs %-14s  loops on ", rank, process.cpus);
        loops_add(&process);
        add("\n");
    }
}

/* Sums over all processes of a host. */
struct host {
    uint32_t loops, processes, most_on_a_cpu, unpinned;
    uint32_t rank_loops, worker_loops;
    uint32_t uses[CPUS_MAX];
};

static void host_count(struct host *host, const struct process *process)
{
    host->processes++;
    host->loops += process->loop_count;
    for (uint32_t i = 0; i < process->loop_count; i++) {
        int cpu = process->loops[i].cpu;
        host->unpinned += cpu < 0;
        if (cpu >= 0) {
            host->uses[cpu]++;
            host->most_on_a_cpu = RG_MAX(host->most_on_a_cpu, host->uses[cpu]);
        }
    }
}

static void host_plan(struct host *host, const struct machine *machine, uint32_t ranks,
                      uint32_t workers)
{
    *host = (struct host){.rank_loops = 0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct process process;
        process_plan(&process, machine, (struct rg_local_rank){.rank = rank, .size = ranks});
        host_count(host, &process);
        host->rank_loops = process.loop_count;
        for (uint32_t i = 0; i < workers; i++) {
            process_plan(
                &process, machine,
                (struct rg_local_rank){
                    .rank = rank, .size = ranks, .worker = i, .workers = workers, .variable = ""});
            host_count(host, &process);
            host->worker_loops = process.loop_count;
        }
    }
}

/* Of a machine, by the indices of the numbers; made once. */
static const struct host *host_of(size_t machine, size_t ranks, size_t workers)
{
    static struct host hosts[RG_ARRAY_LEN(machines)][RG_ARRAY_LEN(rank_counts)]
                            [RG_ARRAY_LEN(worker_counts)];
    struct host *host = &hosts[machine][ranks][workers];
    if (host->processes == 0) {
        host_plan(host, &machines[machine], rank_counts[ranks], worker_counts[workers]);
    }
    return host;
}

static void host_add(size_t machine, size_t ranks, size_t workers)
{
    const struct host *host = host_of(machine, ranks, workers);
    add("| %s | %u | %u | %u | ", machines[machine].name, rank_counts[ranks],
        worker_counts[workers], host->rank_loops);
    add(worker_counts[workers] > 0 ? "%u" : "-", host->worker_loops);
    add(" | %u | %u | %u | %u |\n", host->processes, host->loops, machines[machine].cpus,
        host->unpinned);
}

static void text_make(void)
{
    text_size = 0;
    add("| machine | ranks | workers of each | loops of a rank | of a worker | processes | loops, "
        "all | CPUs | of them not pinned |\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < RG_ARRAY_LEN(machines); i++) {
        for (size_t j = 0; j < RG_ARRAY_LEN(rank_counts); j++) {
            for (size_t k = 0; k < RG_ARRAY_LEN(worker_counts); k++) {
                host_add(i, j, k);
            }
        }
    }
    add("\n```text\n");
    for (size_t i = 0; i < RG_ARRAY_LEN(machines); i++) {
        for (size_t j = 0; j < RG_ARRAY_LEN(rank_counts); j++) {
            ranks_add(&machines[i], rank_counts[j]);
        }
    }
    add("```\n");
}

static void test_the_page_shows_who_runs_where(void)
{
    static char page[2 * sizeof(text)];
    char path[512];
    snprintf(path, sizeof(path), "%s/../docs/internals/placement.md", getenv("RINGEST_TESTS"));
    FILE *file = fopen(path, "re");
    RG_CHECK(file != NULL);
    page[fread(page, 1, sizeof(page) - 1, file)] = '\0';
    fclose(file);
    text_make();
    const char *table = strstr(page, "| machine |");
    RG_CHECK(table != NULL);
    RG_CHECK_STR(table, text);
}

static void test_no_two_ranks_share_a_core(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(machines); i++) {
        const struct machine *machine = &machines[i];
        for (size_t j = 0; j < RG_ARRAY_LEN(rank_counts); j++) {
            int owner[CPUS_MAX] = {0};
            for (uint32_t rank = 0; rank < rank_counts[j]; rank++) {
                struct process process;
                process_plan(&process, machine,
                             (struct rg_local_rank){.rank = rank, .size = rank_counts[j]});
                for (uint32_t k = 0; k < process.loop_count; k++) {
                    int core = process.loops[k].cpu % (int)(machine->cpus / 2);
                    RG_CHECK(owner[core] == 0 || owner[core] == (int)rank + 1);
                    owner[core] = (int)rank + 1;
                }
            }
        }
    }
}

/* GPU n is rank n's; with more ranks than GPUs they begin again. */
static void test_loops_are_on_the_node_of_the_rank_s_gpu(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(machines); i++) {
        uint32_t gpus = (uint32_t)(strlen(machines[i].gpus) + 1) / 2;
        for (uint32_t size = 8; size <= 16; size += 8) {
            for (uint32_t rank = 0; rank < size; rank++) {
                struct process process;
                process_plan(&process, &machines[i],
                             (struct rg_local_rank){.rank = rank, .size = size});
                int node = machines[i].gpus[2 * (rank % gpus)] - '0';
                for (uint32_t k = 0; k < process.loop_count; k++) {
                    RG_CHECK_EQ(process.loops[k].node, node);
                }
            }
        }
    }
}

/* Each process has a loop, so that there are as many loops as CPUs or as processes at most. */
static void test_a_host_has_no_more_loops_than_cpus_or_processes(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(machines); i++) {
        for (size_t j = 0; j < RG_ARRAY_LEN(rank_counts); j++) {
            for (size_t k = 0; k < RG_ARRAY_LEN(worker_counts); k++) {
                const struct host *host = host_of(i, j, k);
                RG_CHECK(host->loops <= RG_MAX(machines[i].cpus, host->processes));
                RG_CHECK(host->most_on_a_cpu <= 1);
            }
        }
    }
}

/* The worst case that was ever met: 104 processes on 8 cores. */
static void test_a_small_host_with_many_workers_has_one_loop_for_each(void)
{
    const struct machine small = {"small", "core:8 pu:1", NULL, NULL, 8};
    struct host host;
    host_plan(&host, &small, 8, 12);
    RG_CHECK_EQ(host.processes, 104);
    RG_CHECK_EQ(host.loops, 104);
    RG_CHECK_EQ(host.most_on_a_cpu, 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_page_shows_who_runs_where),
        RG_TEST(test_no_two_ranks_share_a_core),
        RG_TEST(test_loops_are_on_the_node_of_the_rank_s_gpu),
        RG_TEST(test_a_host_has_no_more_loops_than_cpus_or_processes),
        RG_TEST(test_a_small_host_with_many_workers_has_one_loop_for_each),
    };
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        text_make();
        fputs(text, stdout);
        return 0;
    }
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
