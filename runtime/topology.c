/* Placement by hwloc: see topology.h for the rules.
 *
 * At open the machine is boiled down to two tables, nodes and sites: a site is one CPU that a loop
 * may have. Of a rank they are first those of all ranks together, which share.h divides; then only
 * the rank's own sites stay. A plan sorts the sites by what the policy looks at first, and takes
 * them from the front. Without sites, where hwloc could not describe the machine, no loop is
 * pinned. */
#include "runtime/topology.h"

#include "runtime/cpu_quota.h"
#include "runtime/devices.h"
#include "runtime/launcher.h"

#include <errno.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PINNED_CPU_COUNT_MIN 3
#define KERNEL_CPU_COUNT_MAX 8192 /* CONFIG_NR_CPUS of MAXSMP kernels */

/* Distances between nodes in the unit of ACPI's SLIT, for machines that state none. */
#define DISTANCE_LOCAL 10
#define DISTANCE_SAME_PACKAGE 12
#define DISTANCE_REMOTE 20

struct node {
    hwloc_obj_t obj; /* NULL: CPUs that have no memory of their own */
    int os_index;    /* -1 without obj */
    uint32_t core_count;
    uint64_t nic_distance; /* UINT64_MAX where no network device is known */
    uint32_t nic_rank;     /* position when sorted by nic_distance */
    bool has_nic;          /* a network device is attached to it */
};

struct site {
    int cpu;
    uint32_t node;     /* index in nodes */
    uint32_t position; /* of its core within the node's cores */
    uint32_t sibling;  /* 0: the first CPU of its core */
};

/* Where the sites come from. */
enum share_kind {
    SHARE_WHOLE,  /* the process is alone: its CPUs */
    SHARE_OWN,    /* its CPUs, which are a share already */
    SHARE_DIVIDED /* its part of the CPUs that all ranks have together */
};

struct rg_topology {
    hwloc_topology_t hw;
    hwloc_bitmap_t allowed; /* CPUs of this process */
    struct node *nodes;
    struct site *sites;
    uint32_t node_count, site_count, core_count;
    uint32_t quota; /* CPUs' worth of time that all ranks may take together; 0: unlimited */
    struct rg_local_rank rank;
    enum share_kind share_kind;
    struct rg_devices devices; /* of a machine of several nodes */
    const char *visible;       /* CUDA_VISIBLE_DEVICES, while the topology is opened */
    int gpu;                   /* the rank's, as an index of devices.gpus; -1: not known */
};

/* Components that can only slow us down, or do harm, by starting GPU drivers (which must not happen
 * before a fork), connecting to X11, scanning PCI or moving this thread from CPU to CPU. */
static const char *const unwanted_components[] = {"x86",  "pci",  "opencl",    "cuda",
                                                  "nvml", "rsmi", "levelzero", "gl"};

/* hwloc obeys these, which lead it away from this machine, and some it answers with a message. */
static const char *const redirections[] = {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT",
                                           "HWLOC_CPUID_PATH", "HWLOC_COMPONENTS"};

static bool is_redirected(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(redirections); i++) {
        if (getenv(redirections[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Everything but cores, packages and nodes is left out: it is not needed, takes time, and the
 * objects that broken firmware describes wrongly, which hwloc complains about, are among it. Groups
 * have to stay: a node takes the CPUs of the object it hangs from, and without the group that hwloc
 * makes for a node smaller than its package that would be the package. */
static int hardware_configure(hwloc_topology_t hw, const struct rg_topology_model *model)
{
    if (model != NULL && hwloc_topology_set_synthetic(hw, model->synthetic) < 0) {
        return -EINVAL;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(unwanted_components); i++) {
        /* Fails for a component that this hwloc does not have. */
        hwloc_topology_set_components(hw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      unwanted_components[i]);
    }
    if (hwloc_topology_set_flags(hw, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
                                         HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS |
                                         HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS) < 0 ||
        hwloc_topology_set_all_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_NONE) < 0 ||
        hwloc_topology_set_type_filter(hw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) < 0 ||
        hwloc_topology_set_type_filter(hw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) < 0 ||
        hwloc_topology_set_type_filter(hw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) < 0) {
        return -errno;
    }
    return 0;
}

/* Leaves hw NULL where hwloc does not describe this machine; that is an error only for a model. */
static int hardware_load(struct rg_topology *topology, const struct rg_topology_model *model)
{
    if (model == NULL && is_redirected()) {
        return 0;
    }
    hwloc_topology_t hw;
    if (hwloc_topology_init(&hw) < 0) {
        return -ENOMEM;
    }
    int rc = hardware_configure(hw, model);
    bool is_loaded = rc == 0 && hwloc_topology_load(hw) == 0;
    if (is_loaded && (model != NULL || hwloc_topology_is_thissystem(hw))) {
        topology->hw = hw;
        return 0;
    }
    hwloc_topology_destroy(hw);
    return model != NULL ? -EINVAL : 0;
}

/* The union over all threads, because the one that opens a runtime is often pinned by itself
 * (OpenMP does so) while the process has more. */
static int allowed_find(struct rg_topology *topology, const struct rg_topology_model *model)
{
    RG_ASSERT(topology->hw != NULL);
    RG_ASSERT(topology->allowed == NULL);
    hwloc_const_cpuset_t usable = hwloc_topology_get_allowed_cpuset(topology->hw);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) {
        return -ENOMEM;
    }
    topology->allowed = set;
    if (model != NULL && model->cpus != NULL) {
        if (hwloc_bitmap_list_sscanf(set, model->cpus) < 0) {
            return -EINVAL;
        }
    } else if (model != NULL || hwloc_get_cpubind(topology->hw, set, HWLOC_CPUBIND_PROCESS) < 0) {
        hwloc_bitmap_copy(set, usable);
    }
    hwloc_bitmap_and(set, set, usable);
    return model != NULL && hwloc_bitmap_iszero(set) ? -EINVAL : 0;
}

/* Nodes without any of these CPUs (accelerator or expansion memory) are left out, and so is a
 * second node of the same CPUs (high-bandwidth memory). The last entry is for CPUs of no node. */
static int nodes_find(struct rg_topology *topology, hwloc_const_cpuset_t set)
{
    RG_ASSERT(topology->node_count == 0);
    int count = hwloc_get_nbobjs_by_type(topology->hw, HWLOC_OBJ_NUMANODE);
    hwloc_bitmap_t covered = hwloc_bitmap_alloc();
    topology->nodes = calloc((size_t)RG_MAX(count, 0) + 1, sizeof(*topology->nodes));
    if (covered == NULL || topology->nodes == NULL) {
        hwloc_bitmap_free(covered);
        return -ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        hwloc_obj_t obj = hwloc_get_obj_by_type(topology->hw, HWLOC_OBJ_NUMANODE, (unsigned)i);
        if (!hwloc_bitmap_intersects(obj->cpuset, set) ||
            hwloc_bitmap_intersects(obj->cpuset, covered)) {
            continue;
        }
        hwloc_bitmap_or(covered, covered, obj->cpuset);
        topology->nodes[topology->node_count++] =
            (struct node){.obj = obj, .os_index = (int)obj->os_index};
    }
    if (!hwloc_bitmap_isincluded(set, covered)) {
        topology->nodes[topology->node_count++] = (struct node){.os_index = -1};
    }
    hwloc_bitmap_free(covered);
    return 0;
}

static uint32_t node_of_cpu(const struct rg_topology *topology, unsigned cpu)
{
    for (uint32_t i = 0; i < topology->node_count; i++) {
        hwloc_obj_t obj = topology->nodes[i].obj;
        if (obj == NULL || hwloc_bitmap_isset(obj->cpuset, cpu)) {
            return i;
        }
    }
    RG_ASSERT(!"every CPU of a site has a node");
    return 0;
}

static void core_add(struct rg_topology *topology, hwloc_const_cpuset_t cpus)
{
    RG_ASSERT(!hwloc_bitmap_iszero(cpus));
    uint32_t node = node_of_cpu(topology, (unsigned)hwloc_bitmap_first(cpus));
    uint32_t position = topology->nodes[node].core_count++, sibling = 0;
    for (int cpu = hwloc_bitmap_first(cpus); cpu >= 0; cpu = hwloc_bitmap_next(cpus, cpu)) {
        topology->sites[topology->site_count++] =
            (struct site){.cpu = cpu, .node = node, .position = position, .sibling = sibling++};
    }
    topology->core_count++;
}

static int sites_find(struct rg_topology *topology, hwloc_const_cpuset_t set)
{
    RG_ASSERT(topology->nodes != NULL);
    RG_ASSERT(topology->site_count == 0);
    int cpu_count = hwloc_bitmap_weight(set);
    /* Some virtual machines describe CPUs, but no cores. */
    bool has_cores = hwloc_get_nbobjs_by_type(topology->hw, HWLOC_OBJ_CORE) > 0;
    hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    topology->sites = calloc((size_t)RG_MAX(cpu_count, 1), sizeof(*topology->sites));
    if (cpus == NULL || topology->sites == NULL) {
        hwloc_bitmap_free(cpus);
        return -ENOMEM;
    }
    hwloc_obj_t obj = NULL;
    while ((obj = hwloc_get_next_obj_by_type(topology->hw, type, obj)) != NULL) {
        hwloc_bitmap_and(cpus, obj->cpuset, set);
        if (!hwloc_bitmap_iszero(cpus)) {
            core_add(topology, cpus);
        }
    }
    RG_ASSERT(topology->site_count <= (uint32_t)RG_MAX(cpu_count, 0));
    hwloc_bitmap_free(cpus);
    return 0;
}

/* What the firmware says about the way from one node to another; otherwise a guess by packages. */
static uint64_t node_distance(hwloc_topology_t hw, hwloc_obj_t from, hwloc_obj_t to)
{
    RG_ASSERT(from != NULL);
    RG_ASSERT(to != NULL);
    struct hwloc_distances_s *matrix;
    unsigned matrix_count = 1;
    if (hwloc_distances_get_by_name(hw, "NUMALatency", &matrix_count, &matrix, 0) == 0 &&
        matrix_count > 0) {
        hwloc_uint64_t there, back;
        int rc = hwloc_distances_obj_pair_values(matrix, from, to, &there, &back);
        hwloc_distances_release(hw, matrix);
        if (rc == 0) {
            return there;
        }
    }
    if (from == to) {
        return DISTANCE_LOCAL;
    }
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(hw, HWLOC_OBJ_PACKAGE, from);
    bool is_shared = package != NULL && hwloc_bitmap_isincluded(to->cpuset, package->cpuset);
    return is_shared ? DISTANCE_SAME_PACKAGE : DISTANCE_REMOTE;
}

static uint64_t nic_distance(const struct rg_topology *topology, hwloc_obj_t node)
{
    uint64_t nearest = UINT64_MAX;
    for (uint32_t i = 0; node != NULL && i < topology->devices.nic_count; i++) {
        int nic_node = topology->devices.nics[i].node;
        hwloc_obj_t nic =
            nic_node < 0 ? NULL
                         : hwloc_get_numanode_obj_by_os_index(topology->hw, (unsigned)nic_node);
        if (nic != NULL) {
            nearest = RG_MIN(nearest, node_distance(topology->hw, node, nic));
        }
    }
    return nearest;
}

static bool node_has_nic(const struct rg_topology *topology, const struct node *node)
{
    for (uint32_t i = 0; i < topology->devices.nic_count; i++) {
        if (node->obj != NULL && topology->devices.nics[i].node == node->os_index) {
            return true;
        }
    }
    return false;
}

/* Nodes at the same distance keep the order of the hardware. */
static void nodes_rank(struct rg_topology *topology)
{
    struct node *nodes = topology->nodes;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        nodes[i].nic_distance = nic_distance(topology, nodes[i].obj);
        nodes[i].has_nic = node_has_nic(topology, &nodes[i]);
    }
    for (uint32_t i = 0; i < topology->node_count; i++) {
        for (uint32_t j = 0; j < topology->node_count; j++) {
            nodes[i].nic_rank += nodes[j].nic_distance < nodes[i].nic_distance ||
                                 (nodes[j].nic_distance == nodes[i].nic_distance && j < i);
        }
        RG_ASSERT(nodes[i].nic_rank < topology->node_count);
    }
}

static int tables_build(struct rg_topology *topology, hwloc_const_cpuset_t set)
{
    free(topology->nodes);
    free(topology->sites);
    topology->nodes = NULL;
    topology->sites = NULL;
    topology->node_count = topology->site_count = topology->core_count = 0;
    int rc = nodes_find(topology, set);
    rc = rc == 0 ? sites_find(topology, set) : rc;
    if (rc == 0) {
        nodes_rank(topology);
    }
    return rc;
}

/* The node, as an index of nodes, that a rank's GPU is attached to. */
static uint32_t gpu_node(const struct rg_topology *topology, uint32_t rank)
{
    const struct rg_devices *devices = &topology->devices;
    int gpu = rg_devices_gpu(devices, topology->visible, rank, topology->rank.size);
    for (uint32_t i = 0; gpu >= 0 && i < topology->node_count; i++) {
        if (topology->nodes[i].obj != NULL &&
            topology->nodes[i].os_index == devices->gpus[gpu].node) {
            return i;
        }
    }
    return RG_SHARE_NO_NODE;
}

/* This rank's share of what the tables have. */
static int share_find(const struct rg_topology *topology, struct rg_share *out_share)
{
    uint32_t rank_count = topology->rank.size;
    uint32_t *wishes = calloc(rank_count, sizeof(*wishes));
    uint32_t *core_counts = calloc(topology->node_count, sizeof(*core_counts));
    struct rg_share *shares = calloc(rank_count, sizeof(*shares));
    int rc = wishes != NULL && core_counts != NULL && shares != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < rank_count; i++) {
        wishes[i] = gpu_node(topology, i);
    }
    for (uint32_t i = 0; rc == 0 && i < topology->node_count; i++) {
        core_counts[i] = topology->nodes[i].core_count;
    }
    if (rc == 0) {
        const struct rg_share_host host = {topology->node_count, core_counts, rank_count, wishes};
        rc = rg_share_divide(&host, shares);
    }
    if (rc == 0) {
        *out_share = shares[topology->rank.rank];
    }
    free(shares);
    free(core_counts);
    free(wishes);
    return rc;
}

/* Only those sites of the share stay that the process may use. Sites of a core are neighbours. */
static void sites_keep(struct rg_topology *topology, const struct rg_share *share)
{
    uint32_t kept = 0;
    topology->core_count = 0;
    for (uint32_t i = 0; i < topology->site_count; i++) {
        struct site site = topology->sites[i];
        bool is_in = site.node == share->node && site.position >= share->first &&
                     site.position < share->first + share->count;
        if (!is_in || !hwloc_bitmap_isset(topology->allowed, (unsigned)site.cpu)) {
            continue;
        }
        bool is_sibling = kept > 0 && topology->sites[kept - 1].position == site.position;
        site.sibling = is_sibling ? topology->sites[kept - 1].sibling + 1 : 0;
        topology->core_count += !is_sibling;
        topology->sites[kept++] = site;
    }
    topology->site_count = kept;
}

static int share_take(struct rg_topology *topology, hwloc_const_cpuset_t set)
{
    struct rg_share share = {0};
    int rc = tables_build(topology, set);
    rc = rc == 0 && topology->core_count > 0 ? share_find(topology, &share) : rc;
    if (rc == 0 && topology->core_count > 0) {
        sites_keep(topology, &share);
    }
    return rc;
}

/* The CPUs that whoever started this rank has for all ranks; what of the machine may be used, where
 * that is not to be found out. */
static hwloc_bitmap_t launcher_find(const struct rg_topology *topology,
                                    const struct rg_topology_model *model)
{
    hwloc_const_cpuset_t usable = hwloc_topology_get_allowed_cpuset(topology->hw);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char text[4096] = "";
    const char *list = model != NULL ? model->launcher_cpus : text;
    if (set == NULL) {
        return NULL;
    }
    bool is_known =
        model != NULL ? list != NULL
                      : rg_launcher_cpus("", getpid(), topology->rank.variable, text, sizeof(text));
    if (!is_known || hwloc_bitmap_list_sscanf(set, list) < 0 ||
        !hwloc_bitmap_isincluded(topology->allowed, set)) {
        hwloc_bitmap_copy(set, usable);
    }
    hwloc_bitmap_and(set, set, usable);
    return set;
}

/* What the process may not use of its share, because its own set is of another plan, may be all of
 * it; then its own set is divided. */
static int share_of_rank(struct rg_topology *topology, const struct rg_topology_model *model)
{
    hwloc_bitmap_t launcher = launcher_find(topology, model);
    if (launcher == NULL) {
        return -ENOMEM;
    }
    int rc;
    if (rg_share_is_own((uint32_t)hwloc_bitmap_weight(topology->allowed),
                        (uint32_t)hwloc_bitmap_weight(launcher), topology->rank.size)) {
        topology->share_kind = SHARE_OWN;
        rc = tables_build(topology, topology->allowed);
    } else {
        topology->share_kind = SHARE_DIVIDED;
        rc = share_take(topology, launcher);
        if (rc == 0 && topology->site_count == 0) {
            rc = share_take(topology, topology->allowed);
        }
    }
    hwloc_bitmap_free(launcher);
    return rc;
}

/* Devices of a model: the text has the node of each, "0,0,1". */
static uint32_t devices_parse(const char *text, const char *kind, struct rg_device *out_devices)
{
    uint32_t count = 0;
    for (const char *at = text; at != NULL && *at != '\0' && count < RG_DEVICES_MAX; count++) {
        snprintf(out_devices[count].name, sizeof(out_devices[count].name), "%s%u", kind, count);
        out_devices[count].node = atoi(at);
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return count;
}

/* On a machine of one node nothing depends on them. */
static void devices_find(struct rg_topology *topology, const struct rg_topology_model *model)
{
    struct rg_devices *devices = &topology->devices;
    topology->visible = model != NULL ? model->visible_gpus : getenv("CUDA_VISIBLE_DEVICES");
    if (hwloc_get_nbobjs_by_type(topology->hw, HWLOC_OBJ_NUMANODE) < 2) {
        return;
    }
    if (model == NULL) {
        rg_devices_find(devices, "");
    } else {
        devices->nic_count = devices_parse(model->nic_nodes, "nic", devices->nics);
        devices->gpu_count = devices_parse(model->gpu_nodes, "gpu", devices->gpus);
    }
    if (topology->rank.size > 1) {
        topology->gpu =
            rg_devices_gpu(devices, topology->visible, topology->rank.rank, topology->rank.size);
    }
}

static int hardware_read(struct rg_topology *topology, const struct rg_topology_model *model)
{
    int rc = allowed_find(topology, model);
    if (rc < 0) {
        return rc;
    }
    devices_find(topology, model);
    bool is_alone = topology->rank.size == 1 || hwloc_bitmap_iszero(topology->allowed);
    return is_alone ? tables_build(topology, topology->allowed) : share_of_rank(topology, model);
}

/* Without hwloc we only know how many CPUs there are, and take every two of them for one core. */
static uint32_t core_count_guess(void)
{
    size_t size = CPU_ALLOC_SIZE(KERNEL_CPU_COUNT_MAX);
    cpu_set_t *set = CPU_ALLOC(KERNEL_CPU_COUNT_MAX);
    uint32_t cpu_count = 1;
    if (set != NULL && sched_getaffinity(0, size, set) == 0) {
        cpu_count = (uint32_t)CPU_COUNT_S(size, set);
    }
    CPU_FREE(set);
    return RG_MAX(cpu_count / 2, 1);
}

/* A limit on CPU time is one for all ranks together. */
static int topology_fill(struct rg_topology *topology, const struct rg_topology_model *model)
{
    uint32_t ranks = topology->rank.size;
    int rc = hardware_load(topology, model);
    if (rc == 0 && topology->hw != NULL) {
        rc = hardware_read(topology, model);
    }
    if (rc == 0 && topology->core_count == 0) {
        topology->core_count = RG_MAX(core_count_guess() / ranks, 1);
    }
    topology->quota = model == NULL ? rg_cpu_quota("") : model->cpu_quota;
    if (rc == 0 && topology->quota != 0) {
        topology->core_count = RG_MIN(topology->core_count, RG_MAX(topology->quota / ranks, 1));
    }
    return rc;
}

int rg_topology_open(struct rg_topology **out_topology, const struct rg_local_rank *rank,
                     const struct rg_topology_model *model)
{
    RG_ASSERT(out_topology != NULL);
    RG_ASSERT(rank == NULL || (rank->rank < rank->size && rank->worker <= rank->workers));
    struct rg_topology *topology = calloc(1, sizeof(*topology));
    if (topology == NULL) {
        return -ENOMEM;
    }
    topology->rank = rank != NULL ? *rank : (struct rg_local_rank){.size = 1, .variable = ""};
    topology->gpu = -1;
    int rc = topology_fill(topology, model);
    topology->visible = NULL;
    if (rc < 0) {
        rg_topology_close(topology);
        return rc;
    }
    RG_ASSERT(topology->core_count > 0);
    *out_topology = topology;
    return 0;
}

void rg_topology_close(struct rg_topology *topology)
{
    if (topology == NULL) {
        return;
    }
    hwloc_bitmap_free(topology->allowed);
    if (topology->hw != NULL) {
        hwloc_topology_destroy(topology->hw);
    }
    free(topology->sites);
    free(topology->nodes);
    free(topology);
}

uint32_t rg_topology_loop_count_default(const struct rg_topology *topology)
{
    RG_ASSERT(topology->core_count > 0);
    const struct rg_local_rank *rank = &topology->rank;
    return rg_share_loop_count(topology->core_count, rank->size, rank->workers);
}

/* A site and what the policy compares, the most important first. */
struct candidate {
    uint32_t keys[4];
    const struct site *site;
};

static struct candidate candidate_make(const struct rg_topology *topology,
                                       enum rg_numa_policy policy, const struct site *site)
{
    RG_ASSERT(site->node < topology->node_count);
    switch (policy) {
    case RG_NUMA_SPREAD:
        return (struct candidate){{site->sibling, site->position, site->node}, site};
    case RG_NUMA_COMPACT:
        return (struct candidate){{site->sibling, site->node, site->position}, site};
    default:
        RG_ASSERT(policy == RG_NUMA_AUTO);
        const struct node *node = &topology->nodes[site->node];
        if (node->has_nic) {
            return (struct candidate){{site->sibling, 0, site->position, site->node}, site};
        }
        return (struct candidate){{site->sibling, 1 + node->nic_rank, site->position}, site};
    }
}

static int candidate_compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    for (size_t i = 0; i < RG_ARRAY_LEN(x->keys); i++) {
        if (x->keys[i] != y->keys[i]) {
            return x->keys[i] < y->keys[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Sites in the order in which loops get them. */
static int candidates_sort(const struct rg_topology *topology, enum rg_numa_policy policy,
                           struct candidate **out_candidates)
{
    struct candidate *candidates = calloc((size_t)topology->site_count + 1, sizeof(*candidates));
    if (candidates == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < topology->site_count; i++) {
        candidates[i] = candidate_make(topology, policy, &topology->sites[i]);
    }
    qsort(candidates, topology->site_count, sizeof(*candidates), candidate_compare);
    *out_candidates = candidates;
    return 0;
}

/* The first site of this process: workers have theirs behind those of the rank itself, one after
 * the other. UINT32_MAX where there are not enough for all workers: then none has one, because a
 * worker that is worse off than the others holds all of them up. */
static uint32_t first_site(const struct rg_topology *topology, uint32_t wanted)
{
    const struct rg_local_rank *rank = &topology->rank;
    if (rank->workers == 0) {
        return 0;
    }
    uint64_t before =
        wanted != 0 ? wanted : rg_share_loop_count(topology->core_count, rank->size, 0);
    uint64_t each = wanted != 0 ? wanted : rg_topology_loop_count_default(topology);
    bool is_enough = before + each * rank->workers <= topology->site_count;
    return is_enough ? (uint32_t)(before + each * rank->worker) : UINT32_MAX;
}

static bool is_of_one_node(const struct rg_topology *topology)
{
    for (uint32_t i = 1; i < topology->site_count; i++) {
        if (topology->sites[i].node != topology->sites[0].node) {
            return false;
        }
    }
    return topology->site_count > 0;
}

/* The node of all sites, where a loop without a site still has its memory; -1: there are several,
 * or the process is alone, and so many loops were its own wish. */
static int node_without_site(const struct rg_topology *topology)
{
    bool is_alone = topology->rank.size == 1 && topology->rank.workers == 0;
    return is_alone || !is_of_one_node(topology)
               ? -1
               : topology->nodes[topology->sites[0].node].os_index;
}

/* Whether other ranks have been given the same set cannot be seen. In case they have, each begins
 * at another core of it. The first CPUs of cores come first in order. */
static uint64_t turned(const struct rg_topology *topology, uint64_t place)
{
    const struct rg_local_rank *rank = &topology->rank;
    uint64_t cores = topology->core_count;
    if (topology->share_kind != SHARE_OWN || place >= cores || !is_of_one_node(topology)) {
        return place;
    }
    return (place + rank->rank * cores / rank->size) % cores;
}

int rg_topology_plan(const struct rg_topology *topology, enum rg_numa_policy policy,
                     uint32_t loop_count, struct rg_placement *out, uint32_t out_max)
{
    RG_ASSERT(policy <= RG_NUMA_NONE);
    RG_ASSERT(out_max > 0);
    RG_ASSERT(out_max <= INT32_MAX);
    uint32_t wanted = loop_count > 0 ? loop_count : rg_topology_loop_count_default(topology);
    uint32_t count = RG_MIN(wanted, out_max);
    struct rg_placement nowhere = {.cpu = -1, .node = -1};
    for (uint32_t i = 0; i < count; i++) {
        out[i] = nowhere;
    }
    if (policy == RG_NUMA_NONE || topology->site_count == 0) {
        return (int)count;
    }
    struct candidate *candidates;
    int rc = candidates_sort(topology, policy, &candidates);
    if (rc < 0) {
        return rc;
    }
    bool is_pinned = hwloc_bitmap_weight(topology->allowed) >= PINNED_CPU_COUNT_MIN;
    uint64_t first = first_site(topology, loop_count);
    for (uint32_t i = 0; i < count; i++) {
        out[i].node = node_without_site(topology);
        if (first + i < topology->site_count) {
            const struct site *site = candidates[turned(topology, first + i)].site;
            out[i].cpu = is_pinned ? site->cpu : -1;
            out[i].node = topology->nodes[site->node].os_index;
        }
    }
    free(candidates);
    return (int)count;
}

uint32_t rg_topology_cpu_count(const struct rg_topology *topology)
{
    hwloc_const_bitmap_t all =
        topology->hw != NULL ? hwloc_topology_get_complete_cpuset(topology->hw) : NULL;
    return all != NULL ? (uint32_t)(RG_MAX(hwloc_bitmap_last(all), -1) + 1) : 0;
}

int rg_topology_cpu_node(const struct rg_topology *topology, int cpu)
{
    for (uint32_t i = 0; cpu >= 0 && i < topology->node_count; i++) {
        hwloc_obj_t obj = topology->nodes[i].obj;
        if (obj != NULL && hwloc_bitmap_isset(obj->cpuset, (unsigned)cpu)) {
            return topology->nodes[i].os_index;
        }
    }
    return -1;
}

/* Text that grows at its end, and is cut where there is no more room. */
struct text {
    char *out;
    size_t size, used;
};

static void text_add(struct text *text, const char *format, ...) RG_PRINTF(2, 3);
static void text_add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool has_room = text->used < text->size;
    int length = vsnprintf(has_room ? text->out + text->used : NULL,
                           has_room ? text->size - text->used : 0, format, args);
    va_end(args);
    text->used += (size_t)RG_MAX(length, 0);
}

static void sites_tell(const struct rg_topology *topology, struct text *text)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char list[512] = "not known";
    for (uint32_t i = 0; set != NULL && i < topology->site_count; i++) {
        hwloc_bitmap_set(set, (unsigned)topology->sites[i].cpu);
    }
    if (set != NULL && topology->site_count > 0) {
        hwloc_bitmap_list_snprintf(list, sizeof(list), set);
    }
    hwloc_bitmap_free(set);
    static const char *const reasons[] = {
        [SHARE_WHOLE] = "all that this process may use",
        [SHARE_OWN] = "this process has been given only its share",
        [SHARE_DIVIDED] = "this rank's share",
    };
    text_add(text, "CPUs\t%s: %s\n", list, reasons[topology->share_kind]);
}

static void rank_tell(const struct rg_topology *topology, struct text *text)
{
    const struct rg_local_rank *rank = &topology->rank;
    text_add(text, "local rank\t%u of %u", rank->rank, rank->size);
    if (rank->variable[0] != '\0') {
        text_add(text, ", as %s says", rank->variable);
    } else if (rank->is_given) {
        text_add(text, ", as the program says");
    } else if (rank->aside == NULL) {
        text_add(text, ": no launcher, such as torchrun or srun, says which");
    } else if (rank->lacks) {
        text_add(text, ": %s is set, but not %s", rank->aside, rank->aside_from);
    } else {
        text_add(text, ": %s and %s do not go together, and are left aside", rank->aside,
                 rank->aside_from);
    }
    if (rank->workers > 0) {
        text_add(text, "; its worker %u of %u", rank->worker, rank->workers);
    }
    text_add(text, "\n");
}

/* "node 0: 0000:00:04.0 and 3 more; node 1: 0000:80:00.0". */
static void nics_tell(const struct rg_topology *topology, struct text *text)
{
    const struct rg_devices *devices = &topology->devices;
    bool is_begun = false;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        const struct node *node = &topology->nodes[i];
        const char *first = NULL;
        uint32_t more = 0;
        for (uint32_t j = 0; node->has_nic && j < devices->nic_count; j++) {
            if (devices->nics[j].node == node->os_index) {
                more += first != NULL;
                first = first != NULL ? first : devices->nics[j].name;
            }
        }
        if (first != NULL) {
            text_add(text, "%snode %d: %s", is_begun ? "; " : "network cards\t", node->os_index,
                     first);
            if (more > 0) {
                text_add(text, " and %u more", more);
            }
            is_begun = true;
        }
    }
    text_add(text, "%s", is_begun ? "\n" : "");
}

static void gpu_tell(const struct rg_topology *topology, struct text *text)
{
    if (topology->gpu >= 0) {
        const struct rg_device *gpu = &topology->devices.gpus[topology->gpu];
        text_add(text, "GPU\t%s of node %d\n", gpu->name, gpu->node);
    }
}

/* "CPU 0, 2 (node 0); CPU 52 (node 1)". */
static void loops_tell(const struct rg_placement *placements, uint32_t count, struct text *text)
{
    text_add(text, "loops on\t");
    for (uint32_t i = 0; i < count; i++) {
        const struct rg_placement *place = &placements[i];
        bool is_first = i == 0 || place[-1].node != place->node;
        bool is_last = i + 1 == count || place[1].node != place->node;
        text_add(text, "%s%s",
                 is_first && i > 0 ? "; "
                 : is_first        ? ""
                                   : ", ",
                 is_first && place->cpu >= 0 ? "CPU " : "");
        text_add(text, place->cpu >= 0 ? "%d" : "any CPU", place->cpu);
        if (is_last && place->node >= 0) {
            text_add(text, " (node %d)", place->node);
        }
    }
    text_add(text, "\n");
}

size_t rg_topology_describe(const struct rg_topology *topology,
                            const struct rg_placement *placements, uint32_t count, char *out,
                            size_t size)
{
    struct text text = {.out = out, .size = size};
    rank_tell(topology, &text);
    sites_tell(topology, &text);
    if (topology->quota != 0) {
        text_add(&text, "CPU limit\t%u CPUs, for all ranks together\n", topology->quota);
    }
    gpu_tell(topology, &text);
    nics_tell(topology, &text);
    loops_tell(placements, count, &text);
    return text.used;
}

int rg_topology_pin_self(const struct rg_topology *topology, const struct rg_placement *placement)
{
    if (topology == NULL || placement->cpu < 0) {
        return 0;
    }
    RG_ASSERT(topology->hw != NULL);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) {
        return -ENOMEM;
    }
    hwloc_bitmap_only(set, (unsigned)placement->cpu);
    int rc = hwloc_set_cpubind(topology->hw, set, HWLOC_CPUBIND_THREAD) < 0 ? -errno : 0;
    hwloc_bitmap_free(set);
    return rc;
}

int rg_topology_bind_memory(const struct rg_topology *topology,
                            const struct rg_placement *placement, void *addr, size_t size)
{
    if (topology == NULL || placement->node < 0 || size == 0) {
        return 0;
    }
    RG_ASSERT(topology->hw != NULL);
    RG_ASSERT(addr != NULL);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) {
        return -ENOMEM;
    }
    hwloc_bitmap_only(set, (unsigned)placement->node);
    /* Without HWLOC_MEMBIND_STRICT, pages come from other nodes when this one is full. */
    int flags = HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_NOCPUBIND;
    int rc = hwloc_set_area_membind(topology->hw, addr, size, set, HWLOC_MEMBIND_BIND, flags);
    rc = rc < 0 ? -errno : 0;
    hwloc_bitmap_free(set);
    return rc;
}
