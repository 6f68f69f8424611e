/* Finding sessions by id and kind, and how old ones give way. */
#include "emulator/request/sessions.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

struct item {
    struct rg_session base;
    int *destroyed;
};

static void destroy_item(struct rg_session *session)
{
    struct item *item = RG_CONTAINER_OF(session, struct item, base);
    (*item->destroyed)++;
    free(item);
}

static const struct rg_session_type one_kind = {destroy_item};
static const struct rg_session_type other_kind = {destroy_item};

static struct item *add(struct rg_sessions *sessions, int *destroyed)
{
    struct item *item = calloc(1, sizeof(*item));
    RG_CHECK(item != NULL);
    item->destroyed = destroyed;
    rg_session_init(&item->base, &one_kind);
    RG_CHECK_EQ(rg_sessions_add(sessions, &item->base), 0);
    return item;
}

static void test_a_session_is_found_by_id_and_kind(void)
{
    struct rg_sessions *sessions;
    int destroyed = 0;
    RG_CHECK_EQ(rg_sessions_create(&sessions, 4), 0);
    struct item *item = add(sessions, &destroyed);
    struct rg_h1_slice id = rg_text_slice(item->base.id);
    RG_CHECK_EQ(id.size, RG_SESSION_ID_SIZE);
    struct rg_session *found = rg_sessions_find(sessions, &one_kind, id);
    RG_CHECK(found == &item->base);
    rg_session_unref(found);
    RG_CHECK(rg_sessions_find(sessions, &other_kind, id) == NULL);
    RG_CHECK(rg_sessions_find(sessions, &one_kind, rg_text_slice("")) == NULL);
    RG_CHECK(rg_sessions_find(sessions, &one_kind,
                              rg_text_slice("zz345678901234567890123456789012")) == NULL);
    rg_sessions_remove(sessions, &item->base);
    RG_CHECK(rg_sessions_find(sessions, &one_kind, id) == NULL);
    rg_sessions_remove(sessions, &item->base);
    RG_CHECK_EQ(destroyed, 0); /* We still hold it. */
    rg_session_unref(&item->base);
    RG_CHECK_EQ(destroyed, 1);
    rg_sessions_destroy(sessions);
    rg_sessions_destroy(NULL);
    rg_session_unref(NULL);
}

static void count_one(void *context, struct rg_session *session)
{
    (void)session;
    (*(int *)context)++;
}

static void test_the_one_least_used_gives_way(void)
{
    struct rg_sessions *sessions;
    int destroyed = 0, count = 0;
    RG_CHECK_EQ(rg_sessions_create(&sessions, 3), 0);
    struct item *first = add(sessions, &destroyed);
    struct item *second = add(sessions, &destroyed);
    struct item *third = add(sessions, &destroyed);
    rg_session_unref(rg_sessions_find(sessions, &one_kind, rg_text_slice(first->base.id)));
    struct item *fourth = add(sessions, &destroyed);
    RG_CHECK(rg_sessions_find(sessions, &one_kind, rg_text_slice(second->base.id)) == NULL);
    struct item *kept[] = {first, third, fourth};
    for (size_t i = 0; i < RG_ARRAY_LEN(kept); i++) {
        struct rg_session *found =
            rg_sessions_find(sessions, &one_kind, rg_text_slice(kept[i]->base.id));
        RG_CHECK(found == &kept[i]->base);
        rg_session_unref(found);
    }
    rg_sessions_visit(sessions, &one_kind, count_one, &count);
    RG_CHECK_EQ(count, 3);
    rg_session_unref(&second->base);
    RG_CHECK_EQ(destroyed, 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(kept); i++) {
        rg_session_unref(&kept[i]->base);
    }
    rg_sessions_destroy(sessions);
    RG_CHECK_EQ(destroyed, 4);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_session_is_found_by_id_and_kind),
        RG_TEST(test_the_one_least_used_gives_way),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
