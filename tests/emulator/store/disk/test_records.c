/* What is known of an object survives a restart. */
#include "emulator/store/disk/records.h"

#include "tests/emulator/disk_case.h"

/* Attributes of one known and one own field. */
static struct rg_attributes *some_attributes(void)
{
    struct rg_text list = {0};
    struct rg_attributes *attributes;
    RG_CHECK_EQ(rg_attributes_set(&list, rg_text_slice("cacheControl"), rg_text_slice("no-store")),
                0);
    RG_CHECK_EQ(
        rg_attributes_set(&list, rg_text_slice("metadata.a b"), rg_text_slice("x\n\xc3\xa4")), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    rg_text_fini(&list);
    return attributes;
}

static void check_attributes(const char *name, int64_t metageneration)
{
    struct rg_store_object object;
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), rg_text_slice(name), &object), 0);
    struct rg_h1_slice value = rg_attributes_get(object.info.attributes, "metadata.a b");
    RG_CHECK_MEM(value.data, value.size, "x\n\xc3\xa4", (size_t)4);
    value = rg_attributes_get(object.info.attributes, "cacheControl");
    RG_CHECK_MEM(value.data, value.size, "no-store", (size_t)8);
    RG_CHECK_EQ(object.info.metageneration, metageneration);
    RG_CHECK(object.info.updated_us >= object.info.generation);
    rg_store_object_close(&object);
}

static void test_metadata_survives_a_restart(void)
{
    make_root();
    struct rg_store_object_info info = put("a/b", "data");
    struct rg_attributes *attributes = some_attributes();
    info.attributes = attributes;
    RG_CHECK_EQ(rg_bucket_update_object(bucket(), rg_text_slice("a/b"), &info), 0);
    RG_CHECK_EQ(info.metageneration, 2);
    info.metageneration = 1; /* Somebody else was there first. */
    RG_CHECK_EQ(rg_bucket_update_object(bucket(), rg_text_slice("a/b"), &info), -EAGAIN);
    rg_attributes_unref(attributes);
    check_attributes("a/b", 2);
    reopen_store();
    check_attributes("a/b", 2);
    check("a/b", "data");
    RG_CHECK_EQ(remove_object("a/b"), 0);
    RG_CHECK(!exists("bucket/.ringest/a"));
    remove_root();
}

static void test_an_object_without_a_content_type_survives_a_restart(void)
{
    struct rg_store_object_info described = {0}, info;
    struct rg_store_conditions conditions = {0};
    struct rg_store_writer *writer;
    struct rg_store_object object;
    make_root();
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("a"), 0), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &conditions, &described, &info), 0);
    reopen_store();
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), rg_text_slice("a"), &object), 0);
    RG_CHECK_STR(object.info.content_type, "");
    rg_store_object_close(&object);
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_metadata_survives_a_restart),
        RG_TEST(test_an_object_without_a_content_type_survives_a_restart),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
