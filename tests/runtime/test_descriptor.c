/* What a forked child has of its parent's descriptors, whenever the fork comes: also in the middle
 * of making or closing one. The linker puts functions of this file in the place of the system's,
 * and they stop where a test wants to fork. */
#include "runtime/descriptor.h"

#include "runtime/loop.h"
#include "runtime/runtime.h"
#include "runtime/socket.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a thread stays where a test has stopped it: fork() may have to wait for it. */
#define STOP_NS (200 * RG_NS_PER_MS)

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *where; /* the function at which the next thread stops; NULL: none */
    bool stopped, go_on;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void gate_pass(const char *function)
{
    pthread_mutex_lock(&gate.mutex);
    if (gate.where != NULL && strcmp(gate.where, function) == 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += STOP_NS;
        until.tv_sec += until.tv_nsec / (long)RG_NS_PER_S;
        until.tv_nsec %= (long)RG_NS_PER_S;
        gate.where = NULL;
        gate.stopped = true;
        pthread_cond_broadcast(&gate.changed);
        int rc = 0;
        while (!gate.go_on && rc == 0) {
            rc = pthread_cond_timedwait(&gate.changed, &gate.mutex, &until);
        }
    }
    pthread_mutex_unlock(&gate.mutex);
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        type result = __real_##name arguments;                                                     \
        gate_pass(#name);                                                                          \
        return result;                                                                             \
    }

struct io_uring;
struct io_uring_params;
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *size, int flags),
     (fd, address, size, flags))
WRAP(int, eventfd, (unsigned value, int flags), (value, flags))
WRAP(int, epoll_create1, (int flags), (flags))
WRAP(int, io_uring_queue_init_params,
     (unsigned entries, struct io_uring *ring, struct io_uring_params *params),
     (entries, ring, params))

int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    int argument = va_arg(list, int);
    va_end(list);
    int result = __real_fcntl64(fd, command, argument);
    gate_pass("fcntl64");
    return result;
}

/* These stop before, not behind. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    gate_pass("close");
    return __real_close(fd);
}

void __real_io_uring_queue_exit(struct io_uring *ring);
void __wrap_io_uring_queue_exit(struct io_uring *ring);
void __wrap_io_uring_queue_exit(struct io_uring *ring)
{
    gate_pass("io_uring_queue_exit");
    __real_io_uring_queue_exit(ring);
}

/* Sockets, event descriptors, rings and pipes that this process has. */
static int count_descriptors(void)
{
    char path[64], target[64];
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    RG_ASSERT(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", entry->d_name);
        ssize_t size = readlink(path, target, sizeof(target) - 1);
        target[RG_MAX(size, (ssize_t)0)] = '\0';
        count += strncmp(target, "socket:", 7) == 0 || strncmp(target, "anon_inode:", 11) == 0 ||
                 strncmp(target, "pipe:", 5) == 0;
    }
    closedir(folder);
    return count;
}

/* Ends a child. Not by _exit: there the thread sanitizer asks for threads that the parent has. */
static void leave(int status)
{
    syscall(SYS_exit_group, status);
}

/* Forks, and checks that the child has so many of them. */
static void check_child(int wanted)
{
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        int count = count_descriptors();
        leave(count == wanted ? 0 : 1 + RG_MIN(RG_MAX(count - wanted, 0), 100));
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    RG_CHECK_EQ(WEXITSTATUS(status), 0);
}

/* What is done meanwhile; `prepare` before anything is counted. */
struct action {
    const char *name, *where;
    void (*prepare)(void);
    void (*run)(void);
    void (*finish)(void);
    bool needs_uring;
};

static int listener = -1, peer = -1, made = -1;
static struct rg_runtime *runtime;
static struct rg_cq *cq;

static void connect_somebody(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(bind(listener, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(listen(listener, 1), 0);
    RG_CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(connect(peer, (struct sockaddr *)&address, size), 0);
}

static void accept_it(void)
{
    made = rg_fd_accept(listener, 0);
    RG_ASSERT(made >= 0);
}

static void leave_everybody(void)
{
    rg_fd_close(made, false);
    close(listener);
    close(peer);
}

static void open_socket(void)
{
    made = rg_fd_open_tcp(AF_INET, 0);
    RG_ASSERT(made >= 0);
}

static void close_socket(void)
{
    rg_fd_close(made, false);
}

static void copy_it(void)
{
    made = rg_fd_copy(STDIN_FILENO);
    RG_ASSERT(made >= 0);
}

static void copy_socket(void)
{
    made = rg_fd_copy(peer);
    RG_ASSERT(made >= 0);
}

static void loop_there_and_back(const struct rg_backend_ops *backend)
{
    struct rg_loop_options options = {.backend = backend, .placement = {.node = -1, .cpu = -1}};
    struct rg_loop *loop = NULL;
    RG_ASSERT(rg_loop_create(&loop, &options) == 0);
    RG_ASSERT(rg_loop_start(loop) == 0);
    rg_loop_stop(loop);
    rg_loop_destroy(loop);
}

static void loop_of_epoll(void)
{
    loop_there_and_back(&rg_epoll_backend);
}

static void loop_of_uring(void)
{
    loop_there_and_back(&rg_uring_backend);
}

static void probe(void)
{
    const char *reason;
    RG_ASSERT(rg_uring_probe(&reason) == 0);
}

static void open_queue(void)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 1;
    options.backend = RG_BACKEND_EPOLL;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    RG_CHECK_EQ(rg_cq_open(&cq, runtime, 16), 0);
}

static void make_event(void)
{
    RG_ASSERT(rg_cq_fd(cq) >= 0);
}

static void close_queue(void)
{
    rg_cq_close(cq);
    cq = NULL;
}

static void close_runtime(void)
{
    rg_cq_close(cq);
    cq = NULL;
    rg_runtime_close(runtime);
}

static void open_event(void)
{
    open_queue();
    make_event();
}

static const struct action actions[] = {
    {"a socket that is opened", "socket", NULL, open_socket, close_socket, false},
    {"a socket that is closed", "close", open_socket, close_socket, NULL, false},
    {"a connection that is accepted", "accept4", connect_somebody, accept_it, leave_everybody,
     false},
    {"a copy", "fcntl64", connect_somebody, copy_socket, leave_everybody, false},
    {"an epoll instance", "epoll_create1", NULL, loop_of_epoll, NULL, false},
    {"what wakes a loop of epoll", "eventfd", NULL, loop_of_epoll, NULL, false},
    {"what wakes a loop, closed", "close", NULL, loop_of_epoll, NULL, false},
    {"the event of a queue", "eventfd", open_queue, make_event, close_runtime, false},
    {"the event of a queue, closed", "close", open_event, close_queue, close_runtime, false},
    {"a ring that is tried", "io_uring_queue_init_params", NULL, probe, NULL, true},
    {"a ring", "io_uring_queue_init_params", NULL, loop_of_uring, NULL, true},
    {"what wakes a loop with a ring", "eventfd", NULL, loop_of_uring, NULL, true},
    {"a ring that is taken down", "io_uring_queue_exit", NULL, loop_of_uring, NULL, true},
};

static void *action_thread(void *context)
{
    const struct action *action = context;
    action->run();
    return NULL;
}

/* True when the thread has stopped where it was to. */
static bool gate_wait(void)
{
    pthread_mutex_lock(&gate.mutex);
    bool stopped = gate.stopped;
    pthread_mutex_unlock(&gate.mutex);
    return stopped;
}

static void check_action(const struct action *action)
{
    int before = count_descriptors();
    if (action->prepare != NULL) {
        action->prepare();
    }
    /* What the test itself has made is the child's, too; what the library has is not. */
    int of_test = listener >= 0 ? 2 : 0;
    gate.stopped = gate.go_on = false;
    gate.where = action->where;
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, action_thread, (void *)action), 0);
    RG_AWAIT(gate_wait());
    printf("  %s\n", action->name);
    check_child(before + of_test);
    pthread_mutex_lock(&gate.mutex);
    gate.go_on = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    pthread_join(thread, NULL);
    if (action->finish != NULL) {
        action->finish();
    }
    listener = peer = made = -1;
    RG_CHECK_EQ(count_descriptors(), before);
}

static bool has_uring(void)
{
    const char *reason;
    return rg_uring_probe(&reason) == 0;
}

static void test_a_fork_in_the_middle_of_it(void)
{
    bool uring = has_uring();
    for (size_t i = 0; i < RG_ARRAY_LEN(actions); i++) {
        if (uring || !actions[i].needs_uring) {
            check_action(&actions[i]);
        }
    }
}

static _Atomic bool churn_stops;

static void *churn(void *context)
{
    (void)context;
    while (!churn_stops) {
        int fd = rg_fd_open_tcp(AF_INET, 0);
        RG_ASSERT(fd >= 0);
        rg_fd_close(fd, false);
    }
    return NULL;
}

static void *churn_loops(void *context)
{
    const struct rg_backend_ops *backend = context;
    while (!churn_stops) {
        loop_there_and_back(backend);
    }
    return NULL;
}

static void test_forks_amid_the_making_and_closing_of_many(void)
{
    enum { FORKS = 100 };
    pthread_t threads[4];
    int before = count_descriptors();
    churn_stops = false;
    RG_CHECK_EQ(pthread_create(&threads[0], NULL, churn, NULL), 0);
    RG_CHECK_EQ(pthread_create(&threads[1], NULL, churn, NULL), 0);
    RG_CHECK_EQ(pthread_create(&threads[2], NULL, churn_loops, (void *)&rg_epoll_backend), 0);
    RG_CHECK_EQ(pthread_create(&threads[3], NULL, churn_loops,
                               (void *)(has_uring() ? &rg_uring_backend : &rg_epoll_backend)),
                0);
    for (int i = 0; i < FORKS; i++) {
        check_child(before);
    }
    churn_stops = true;
    for (size_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(count_descriptors(), before);
}

static void test_what_is_dropped_is_no_longer_known(void)
{
    copy_it();
    int fd = made;
    rg_fd_drop(fd);
    rg_fd_drop(-1);
    /* The number is somebody else's now, and stays his in a child. */
    RG_CHECK_EQ(dup2(STDIN_FILENO, fd), fd);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        leave(fcntl(fd, F_GETFD) >= 0 ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    close(fd);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_fork_in_the_middle_of_it),
        RG_TEST(test_forks_amid_the_making_and_closing_of_many),
        RG_TEST(test_what_is_dropped_is_no_longer_known),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
