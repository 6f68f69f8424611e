/* Lists, checked arithmetic, and what a failed assertion does. */
#include "runtime/base.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

struct item {
    int value;
    struct rg_list node;
};

static struct item *item_of(struct rg_list *node)
{
    return RG_CONTAINER_OF(node, struct item, node);
}

static void test_a_zeroed_node_is_in_no_list(void)
{
    struct item item = {0};
    RG_CHECK(!rg_list_linked(&item.node));
    rg_list_remove(&item.node);
    RG_CHECK(!rg_list_linked(&item.node));
}

static void test_a_list_keeps_its_order(void)
{
    struct rg_list list;
    struct item items[4] = {{.value = 0}, {.value = 1}, {.value = 2}, {.value = 3}};
    rg_list_init(&list);
    RG_CHECK(rg_list_empty(&list) && rg_list_pop_front(&list) == NULL);
    rg_list_push_back(&list, &items[2].node);
    rg_list_push_back(&list, &items[3].node);
    rg_list_push_front(&list, &items[1].node);
    rg_list_push_front(&list, &items[0].node);
    rg_list_remove(&items[2].node);
    RG_CHECK(!rg_list_linked(&items[2].node));
    RG_CHECK_EQ(item_of(rg_list_pop_front(&list))->value, 0);
    RG_CHECK_EQ(item_of(rg_list_pop_front(&list))->value, 1);
    RG_CHECK_EQ(item_of(rg_list_pop_front(&list))->value, 3);
    RG_CHECK(rg_list_empty(&list));
}

static void test_splicing_moves_all_and_empties_the_source(void)
{
    struct rg_list to, from;
    struct item items[4] = {{.value = 0}, {.value = 1}, {.value = 2}, {.value = 3}};
    rg_list_init(&to);
    rg_list_init(&from);
    rg_list_splice_back(&to, &from);
    RG_CHECK(rg_list_empty(&to));
    for (int i = 0; i < 4; i++) {
        rg_list_push_back(i < 2 ? &to : &from, &items[i].node);
    }
    rg_list_splice_back(&to, &from);
    RG_CHECK(rg_list_empty(&from));
    for (int i = 0; i < 4; i++) {
        RG_CHECK_EQ(item_of(rg_list_pop_front(&to))->value, i);
    }
}

static void test_overflow_is_noticed(void)
{
    uint64_t out;
    RG_CHECK(rg_add_overflow(UINT64_MAX, UINT64_C(1), &out));
    RG_CHECK(!rg_add_overflow(UINT64_MAX - 1, UINT64_C(1), &out) && out == UINT64_MAX);
    RG_CHECK(rg_mul_overflow(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    RG_CHECK(!rg_mul_overflow(UINT64_C(1) << 31, UINT64_C(1) << 32, &out));
}

static void test_a_failed_assertion_names_itself_and_aborts(void)
{
    int fds[2];
    RG_CHECK_EQ(pipe(fds), 0);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        dup2(fds[1], STDERR_FILENO);
        RG_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    close(fds[1]);
    char text[512] = "";
    RG_CHECK(read(fds[0], text, sizeof(text) - 1) > 0);
    close(fds[0]);
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    RG_CHECK(strstr(text, "1 + 1 == 3") != NULL && strstr(text, "test_base.c") != NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_zeroed_node_is_in_no_list),
        RG_TEST(test_a_list_keeps_its_order),
        RG_TEST(test_splicing_moves_all_and_empties_the_source),
        RG_TEST(test_overflow_is_noticed),
        RG_TEST(test_a_failed_assertion_names_itself_and_aborts),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
