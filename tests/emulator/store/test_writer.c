/* Objects in the making: seen when they are committed, joined, or left. */
#include "emulator/store/writer.h"

#include "emulator/wire/checksum.h"
#include "tests/emulator/store_case.h"

static struct rg_store_writer *begin(const char *name)
{
    struct rg_store_writer *writer;
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice(name), 0), 0);
    return writer;
}

static void commit(struct rg_store_writer *writer)
{
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {.content_type = "a/b"};
    uint32_t crc32c = rg_store_writer_crc32c(writer);
    uint64_t size = rg_store_writer_size(writer);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
    RG_CHECK_EQ(info.crc32c, crc32c);
    RG_CHECK_EQ(info.size, size);
    RG_CHECK_EQ(info.metageneration, 1);
}

static void check_content(const char *name, const char *want)
{
    struct rg_store_object object;
    const uint8_t *data;
    char found[64];
    RG_CHECK_EQ(get(name, &object), 0);
    RG_CHECK_EQ(object.info.size, strlen(want));
    for (uint64_t offset = 0; offset < object.info.size;) {
        size_t size = rg_store_object_read(&object, offset, &data);
        memcpy(found + offset, data, size);
        offset += size;
    }
    RG_CHECK(memcmp(found, want, strlen(want)) == 0);
    RG_CHECK_EQ(object.info.crc32c, rg_checksum_extend(0, want, strlen(want)));
    rg_store_object_close(&object);
}

static void test_nobody_sees_an_object_before_it_is_committed(void)
{
    struct rg_store_object object;
    open_store(NULL, 0);
    struct rg_store_writer *writer = begin("o");
    RG_CHECK_EQ(rg_store_writer_append(writer, "one ", 4), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, "", 0), 0);
    RG_CHECK_EQ(get("o", &object), -ENOENT);
    RG_CHECK_EQ(rg_store_writer_append(writer, "two", 3), 0);
    commit(writer);
    check_content("o", "one two");
    writer = begin("o");
    RG_CHECK_EQ(rg_store_writer_append(writer, "three", 5), 0);
    rg_store_writer_abort(writer);
    rg_store_writer_abort(NULL);
    check_content("o", "one two");
    rg_store_close(store);
}

static void test_parts_and_objects_are_joined(void)
{
    static const char *const synthetic[] = {"other/s:1:3"};
    struct rg_store_object part, object;
    open_store(synthetic, 1);
    struct rg_store_writer *writer = begin("part");
    RG_CHECK_EQ(rg_store_writer_append(writer, "part ", 5), 0);
    RG_CHECK_EQ(rg_store_writer_seal(writer, &part), 0);
    RG_CHECK_EQ(get("part", &object), -ENOENT);
    put_text("object", "object");
    RG_CHECK_EQ(get("object", &object), 0);
    writer = begin("joined");
    RG_CHECK_EQ(rg_store_writer_append(writer, "a ", 2), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &part), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &object), 0);
    rg_store_object_close(&part);
    rg_store_object_close(&object);
    commit(writer);
    check_content("joined", "a part object");
    /* Bytes of another kind of place are read. */
    RG_CHECK_EQ(rg_bucket_open_object(rg_store_find_bucket(store, rg_text_slice("other")),
                                      rg_text_slice("s00000000"), &object),
                0);
    writer = begin("copy");
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &object), 0);
    RG_CHECK_EQ(rg_store_writer_crc32c(writer), object.info.crc32c);
    RG_CHECK_EQ(rg_store_writer_size(writer), 3);
    rg_store_object_close(&object);
    commit(writer);
    rg_store_close(store);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_nobody_sees_an_object_before_it_is_committed),
        RG_TEST(test_parts_and_objects_are_joined),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
