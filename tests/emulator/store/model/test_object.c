/* Reading and closing an open version, and what requests demand of one. */
#include "emulator/store/model/object.h"

#include "tests/support/test.h"

static int closed;

static size_t read_letters(struct rg_store_object *object, uint64_t offset, const uint8_t **out)
{
    *out = (const uint8_t *)object->owner + offset;
    return (size_t)(object->info.size - offset);
}

static void count_close(struct rg_store_object *object)
{
    (void)object;
    closed++;
}

static const struct rg_store_object_type letters = {.read = read_letters, .close = count_close};
static const struct rg_store_object_type nothing_to_close = {.read = read_letters};

static void test_an_object_is_read_by_its_type_and_closed_once(void)
{
    char text[] = "letters";
    const uint8_t *data;
    struct rg_store_object object = {.info.size = 7, .type = &letters, .owner = text};
    closed = 0;
    RG_CHECK_EQ(rg_store_object_read(&object, 2, &data), 5);
    RG_CHECK_EQ(data[0], 't');
    rg_store_object_close(&object);
    rg_store_object_close(&object);
    RG_CHECK_EQ(closed, 1);
    object.type = &nothing_to_close;
    rg_store_object_close(&object);
    RG_CHECK(object.type == NULL);
    RG_CHECK_EQ(closed, 1);
}

static struct rg_store_condition is(int64_t value)
{
    return (struct rg_store_condition){.set = true, .value = value};
}

static void test_conditions(void)
{
    const struct rg_store_object_info info = {.generation = 5, .metageneration = 2};
    const struct {
        struct rg_store_conditions conditions;
        int with, without; /* The object, and none. */
    } rows[] = {
        {{.generation = {0}}, 0, 0},
        {{.generation = is(5)}, 0, -ENOENT},
        {{.generation = is(6)}, -ENOENT, -ENOENT},
        {{.generation_match = is(5)}, 0, -ESTALE},
        {{.generation_match = is(0)}, -ESTALE, 0},
        {{.generation_not_match = is(5)}, -EALREADY, 0},
        {{.generation_not_match = is(0)}, 0, -EALREADY},
        {{.metageneration_match = is(2)}, 0, -ESTALE},
        {{.metageneration_match = is(3)}, -ESTALE, -ESTALE},
        {{.metageneration_not_match = is(2)}, -EALREADY, 0},
        {{.generation_match = is(6), .metageneration_not_match = is(2)}, -ESTALE, -ESTALE},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_store_conditions_check(&rows[i].conditions, &info), rows[i].with);
        RG_CHECK_EQ(rg_store_conditions_check(&rows[i].conditions, NULL), rows[i].without);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_object_is_read_by_its_type_and_closed_once),
        RG_TEST(test_conditions),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
