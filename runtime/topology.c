/* Placement by hwloc: see topology.h for the rules.
 *
 * At open the machine is boiled down to two tables, nodes and sites: a site is one CPU that a loop
 * may have. A plan sorts the sites by what the policy looks at first, and takes them from the
 * front. Without sites, where hwloc could not describe the machine, no loop is pinned. */
#include "runtime/topology.h"

#include "runtime/cpu_quota.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CORES_PER_LOOP 4
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
    uint64_t nic_distance; /* 0 where no network device is known */
    uint32_t nic_rank;     /* position when sorted by nic_distance */
};

struct site {
    int cpu;
    uint32_t node;     /* index in nodes */
    uint32_t position; /* of its core within the node's cores */
    uint32_t sibling;  /* 0: the first CPU of its core */
};

struct rg_topology {
    hwloc_topology_t hw;
    hwloc_bitmap_t allowed; /* CPUs of this process */
    struct node *nodes;
    struct site *sites;
    uint32_t node_count, site_count, core_count;
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

/* Nodes without CPUs of ours (accelerator or expansion memory) are left out, and so is a second
 * node of the same CPUs (high-bandwidth memory). The last entry is for CPUs of no node. */
static int nodes_find(struct rg_topology *topology)
{
    RG_ASSERT(topology->allowed != NULL);
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
        if (!hwloc_bitmap_intersects(obj->cpuset, topology->allowed) ||
            hwloc_bitmap_intersects(obj->cpuset, covered)) {
            continue;
        }
        hwloc_bitmap_or(covered, covered, obj->cpuset);
        topology->nodes[topology->node_count++] =
            (struct node){.obj = obj, .os_index = (int)obj->os_index};
    }
    if (!hwloc_bitmap_isincluded(topology->allowed, covered)) {
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
    RG_ASSERT(!"every allowed CPU has a node");
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

static int sites_find(struct rg_topology *topology)
{
    RG_ASSERT(topology->nodes != NULL);
    RG_ASSERT(topology->site_count == 0);
    int cpu_count = hwloc_bitmap_weight(topology->allowed);
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
        hwloc_bitmap_and(cpus, obj->cpuset, topology->allowed);
        if (!hwloc_bitmap_iszero(cpus)) {
            core_add(topology, cpus);
        }
    }
    RG_ASSERT(topology->site_count <= (uint32_t)RG_MAX(cpu_count, 0));
    hwloc_bitmap_free(cpus);
    return 0;
}

/* The first bytes of a small sysfs file. False if there is none. */
static bool sysfs_read(int dir_fd, const char *device, const char *name, char out[32])
{
    char path[NAME_MAX + 32], text[32];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", device, name) >= sizeof(path)) {
        return false;
    }
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t size = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (size <= 0) {
        return false;
    }
    RG_ASSERT((size_t)size < sizeof(text));
    text[size] = '\0';
    memcpy(out, text, sizeof(text));
    return true;
}

/* The nodes that PCI devices of the network class are attached to. Interfaces (/sys/class/net)
 * would not do: a container sees only those of its own network namespace, which have no device. */
static void nic_nodes_find(hwloc_bitmap_t nodes)
{
    DIR *dir = opendir("/sys/bus/pci/devices");
    if (dir == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char text[32];
        if (sysfs_read(dirfd(dir), entry->d_name, "class", text) && strncmp(text, "0x02", 4) == 0 &&
            sysfs_read(dirfd(dir), entry->d_name, "numa_node", text) && atoi(text) >= 0) {
            hwloc_bitmap_set(nodes, (unsigned)atoi(text));
        }
    }
    closedir(dir);
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

static uint64_t nic_distance(hwloc_topology_t hw, hwloc_obj_t node, hwloc_const_bitmap_t nic_nodes)
{
    uint64_t nearest = UINT64_MAX;
    unsigned nic_node;
    hwloc_bitmap_foreach_begin(nic_node, nic_nodes)
    {
        hwloc_obj_t nic = hwloc_get_numanode_obj_by_os_index(hw, nic_node);
        if (node != NULL && nic != NULL) {
            nearest = RG_MIN(nearest, node_distance(hw, node, nic));
        }
    }
    hwloc_bitmap_foreach_end();
    return nearest;
}

/* Nodes at the same distance keep the order of the hardware. */
static int nodes_rank(struct rg_topology *topology, const struct rg_topology_model *model)
{
    hwloc_bitmap_t nic_nodes = hwloc_bitmap_alloc();
    if (nic_nodes == NULL) {
        return -ENOMEM;
    }
    if (model == NULL && topology->node_count > 1) {
        nic_nodes_find(nic_nodes);
    } else if (model != NULL && model->nic_node >= 0) {
        hwloc_bitmap_set(nic_nodes, (unsigned)model->nic_node);
    }
    struct node *nodes = topology->nodes;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        nodes[i].nic_distance = nic_distance(topology->hw, nodes[i].obj, nic_nodes);
    }
    for (uint32_t i = 0; i < topology->node_count; i++) {
        for (uint32_t j = 0; j < topology->node_count; j++) {
            nodes[i].nic_rank += nodes[j].nic_distance < nodes[i].nic_distance ||
                                 (nodes[j].nic_distance == nodes[i].nic_distance && j < i);
        }
        RG_ASSERT(nodes[i].nic_rank < topology->node_count);
    }
    hwloc_bitmap_free(nic_nodes);
    return 0;
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

static int topology_fill(struct rg_topology *topology, const struct rg_topology_model *model)
{
    int rc = hardware_load(topology, model);
    if (rc == 0 && topology->hw != NULL) {
        rc = allowed_find(topology, model);
        rc = rc == 0 ? nodes_find(topology) : rc;
        rc = rc == 0 ? sites_find(topology) : rc;
        rc = rc == 0 ? nodes_rank(topology, model) : rc;
    }
    if (rc == 0 && topology->core_count == 0) {
        topology->core_count = core_count_guess();
    }
    uint32_t quota = model == NULL ? rg_cpu_quota("") : model->cpu_quota;
    if (rc == 0 && quota != 0) {
        topology->core_count = RG_MIN(topology->core_count, quota);
    }
    return rc;
}

int rg_topology_open(struct rg_topology **out_topology, const struct rg_topology_model *model)
{
    RG_ASSERT(out_topology != NULL);
    struct rg_topology *topology = calloc(1, sizeof(*topology));
    if (topology == NULL) {
        return -ENOMEM;
    }
    int rc = topology_fill(topology, model);
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
    uint32_t count = topology->core_count / CORES_PER_LOOP;
    return RG_MAX(RG_MIN(count, RG_LOOP_COUNT_MAX), 1);
}

/* A site and what the policy compares, the most important first. */
struct candidate {
    uint32_t keys[3];
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
        uint32_t rank = topology->nodes[site->node].nic_rank;
        return (struct candidate){{site->sibling, rank, site->position}, site};
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

int rg_topology_plan(const struct rg_topology *topology, enum rg_numa_policy policy,
                     uint32_t loop_count, struct rg_placement *out, uint32_t out_max)
{
    RG_ASSERT(policy <= RG_NUMA_NONE);
    RG_ASSERT(out_max > 0);
    RG_ASSERT(out_max <= INT32_MAX);
    uint32_t wanted = loop_count > 0 ? loop_count : rg_topology_loop_count_default(topology);
    uint32_t count = RG_MIN(wanted, out_max);
    uint32_t placed = policy == RG_NUMA_NONE ? 0 : RG_MIN(count, topology->site_count);
    bool is_pinned = topology->site_count >= PINNED_CPU_COUNT_MIN;

    struct candidate *candidates = calloc((size_t)topology->site_count + 1, sizeof(*candidates));
    if (candidates == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; placed > 0 && i < topology->site_count; i++) {
        candidates[i] = candidate_make(topology, policy, &topology->sites[i]);
    }
    qsort(candidates, placed > 0 ? topology->site_count : 0, sizeof(*candidates),
          candidate_compare);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (struct rg_placement){.cpu = -1, .node = -1};
        if (i < placed) {
            const struct site *site = candidates[i].site;
            out[i].cpu = is_pinned ? site->cpu : -1;
            out[i].node = topology->nodes[site->node].os_index;
        }
    }
    free(candidates);
    return (int)count;
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
