#include "base/cores.h"

#include "base/mem.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>

struct cores {
    hwloc_topology_t topology;
    bool loaded;
    hwloc_cpuset_t *sets; /* of each core, those processors that may be used; owned */
    uint32_t n;
    uint32_t processors; /* of the affinity mask */
};

/* ---- finding ---- */

static uint32_t count_processors(void)
{
    /* The kernel refuses a mask shorter than its own, and a cpu_set_t holds only 1024. */
    for (size_t cpus = CPU_SETSIZE; cpus <= (size_t)CPU_SETSIZE * 64; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int rc = sched_getaffinity(0, bytes, set), errnum = errno;
        int n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (n > 0)
            return (uint32_t)n;
        if (rc == 0 || errnum != EINVAL)
            break;
    }
    return 1;
}

static bool load(struct cores *c)
{
    if (hwloc_topology_init(&c->topology) != 0)
        return false;
    c->loaded = hwloc_topology_load(c->topology) == 0;
    if (!c->loaded)
        hwloc_topology_destroy(c->topology);
    return c->loaded;
}

static bool add_core(struct cores *c, hwloc_const_cpuset_t whole, hwloc_const_cpuset_t allowed)
{
    if (!hwloc_bitmap_intersects(whole, allowed))
        return true;
    hwloc_cpuset_t set = hwloc_bitmap_alloc();
    if (!set)
        return false;
    (void)hwloc_bitmap_and(set, whole, allowed);
    c->sets[c->n++] = set;
    return true;
}

static bool list_cores(struct cores *c, hwloc_const_cpuset_t allowed)
{
    /* A virtual machine may show processors without cores. */
    hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(c->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int most = hwloc_get_nbobjs_by_type(c->topology, type);
    c->sets = mem_calloc(most > 0 ? (size_t)most : 1, sizeof *c->sets);
    if (!c->sets)
        return false;
    hwloc_obj_t core = NULL;
    while (most > 0 && (core = hwloc_get_next_obj_by_type(c->topology, type, core)))
        if (!add_core(c, core->cpuset, allowed))
            return false;
    return true;
}

sluice_status cores_open(struct cores **out, sluice_error *err)
{
    struct cores *c = mem_calloc(1, sizeof *c);
    *out = c;
    if (!c)
        return err_memory(err, sizeof *c, "the list of cores");
    c->processors = count_processors();
    if (!load(c))
        return SLUICE_OK;
    hwloc_cpuset_t allowed = hwloc_bitmap_alloc();
    bool listed = allowed && (hwloc_get_cpubind(c->topology, allowed, HWLOC_CPUBIND_THREAD) != 0 ||
                              list_cores(c, allowed));
    hwloc_bitmap_free(allowed);
    if (listed)
        return SLUICE_OK;
    cores_close(c);
    *out = NULL;
    return err_memory(err, sizeof(hwloc_cpuset_t), "the list of cores");
}

void cores_close(struct cores *cores)
{
    if (!cores)
        return;
    for (uint32_t i = 0; i < cores->n; i++)
        hwloc_bitmap_free(cores->sets[i]);
    mem_free(cores->sets);
    if (cores->loaded)
        hwloc_topology_destroy(cores->topology);
    mem_free(cores);
}

uint32_t cores_count(const struct cores *cores)
{
    return cores->n ? cores->n : cores->processors;
}

/* ---- placing ---- */

static uint32_t cores_within(const struct cores *c, hwloc_const_cpuset_t set)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        n += hwloc_bitmap_isincluded(c->sets[i], set) != 0;
    return n;
}

/* Those within `set` first; each part keeps its order. */
static void move_to_front(struct cores *c, hwloc_const_cpuset_t set)
{
    uint32_t front = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        hwloc_cpuset_t own = c->sets[i];
        if (!hwloc_bitmap_isincluded(own, set))
            continue;
        for (uint32_t k = i; k > front; k--)
            c->sets[k] = c->sets[k - 1];
        c->sets[front++] = own;
    }
}

void cores_prefer_near(struct cores *cores, uint32_t n)
{
    static const hwloc_obj_type_t DOMAINS[] = {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_NUMANODE};
    for (size_t d = 0; cores->n > 0 && d < sizeof DOMAINS / sizeof *DOMAINS; d++) {
        hwloc_obj_t domain = NULL;
        while ((domain = hwloc_get_next_obj_by_type(cores->topology, DOMAINS[d], domain)))
            if (cores_within(cores, domain->cpuset) >= n) {
                move_to_front(cores, domain->cpuset);
                return;
            }
    }
}

bool cores_bind(struct cores *cores, pthread_t thread, uint32_t i)
{
    return cores->n > 0 &&
           hwloc_set_thread_cpubind(cores->topology, thread, cores->sets[i % cores->n], 0) == 0;
}
