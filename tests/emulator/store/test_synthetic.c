/* Objects by formula: names, order, bytes, checksums, specs. */
#include "emulator/store/synthetic.h"
#include "emulator/wire/checksum.h"
#include "emulator/wire/text.h"
#include "tests/support/test.h"

static struct rg_synthetic *make_set(const char *spec)
{
    struct rg_synthetic *set;
    struct rg_h1_slice bucket;
    char error[512];
    if (rg_synthetic_create(&set, spec, &bucket, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return set;
}

static void open_object(struct rg_synthetic *set, const char *name, struct rg_store_object *object)
{
    RG_CHECK_EQ(rg_synthetic_open(set, rg_text_slice(name), object), 0);
}

static uint32_t crc_of_bytes(struct rg_store_object *object)
{
    uint32_t crc = 0;
    const uint8_t *data;
    for (uint64_t offset = 0; offset < object->info.size;) {
        size_t size = rg_store_object_read(object, offset, &data);
        crc = rg_checksum_extend(crc, data, size);
        offset += size;
    }
    return crc;
}

static void test_the_computed_checksum_is_that_of_the_bytes(void)
{
    static const char *const sizes[] = {"0",       "1",       "7",       "4095",    "4096",
                                        "100KiB",  "3MiB",    "4194300", "4194301", "4194302",
                                        "8388601", "8388602", "8388603", "50MiB"};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        char spec[64], name[32];
        snprintf(spec, sizeof(spec), "data/x:40:%s", sizes[i]);
        struct rg_synthetic *set = make_set(spec);
        for (int n = 0; n < (i < 7 ? 40 : 4); n++) {
            struct rg_store_object object;
            snprintf(name, sizeof(name), "x%08d", n);
            open_object(set, name, &object);
            RG_CHECK(object.info.has_crc32c);
            RG_CHECK_EQ(object.info.crc32c, crc_of_bytes(&object));
        }
        rg_synthetic_destroy(set);
    }
}

static void test_bytes_depend_on_name_and_offset_only(void)
{
    struct rg_synthetic *a = make_set("data/x:10:5MiB"), *b = make_set("data/x:20:5MiB");
    struct rg_store_object first, second, other;
    const uint8_t *whole, *part;
    open_object(a, "x00000003", &first);
    open_object(b, "x00000003", &second);
    open_object(a, "x00000004", &other);
    for (int i = 0; i < 1000; i++) {
        uint64_t offset = rg_test_random_below(first.info.size);
        size_t size = rg_store_object_read(&first, offset, &whole);
        RG_CHECK(size >= 1 && size <= first.info.size - offset);
        RG_CHECK(rg_store_object_read(&second, offset, &part) == size);
        RG_CHECK_MEM(part, RG_MIN(size, (size_t)64), whole, RG_MIN(size, (size_t)64));
    }
    RG_CHECK(first.info.crc32c != other.info.crc32c);
    RG_CHECK_EQ(first.info.generation, second.info.generation);
    rg_synthetic_destroy(a);
    rg_synthetic_destroy(b);
}

static void test_another_size_is_another_generation(void)
{
    struct rg_synthetic *a = make_set("data/x:10:5MiB"), *b = make_set("data/x:10:6MiB");
    struct rg_store_object first, second;
    open_object(a, "x00000003", &first);
    open_object(b, "x00000003", &second);
    RG_CHECK(first.info.generation != second.info.generation);
    rg_synthetic_destroy(a);
    rg_synthetic_destroy(b);
}

static void test_names_have_eight_digits_or_as_many_as_it_takes(void)
{
    struct rg_store_object object;
    struct rg_synthetic *set = make_set("data/a/b-:100:1");
    open_object(set, "a/b-00000000", &object);
    open_object(set, "a/b-00000099", &object);
    static const char *const absent[] = {"a/b-00000100", "a/b-0000009",  "a/b-000000099",
                                         "a/b-0000009x", "a/c-00000099", "a/b-",
                                         "00000001"};
    for (size_t i = 0; i < RG_ARRAY_LEN(absent); i++) {
        RG_CHECK_EQ(rg_synthetic_open(set, rg_text_slice(absent[i]), &object), -ENOENT);
    }
    rg_synthetic_destroy(set);
    set = make_set("data/:1000000000:1");
    open_object(set, "999999999", &object);
    rg_synthetic_destroy(set);
}

static void test_seek_finds_the_first_name_not_before(void)
{
    static const struct {
        const char *from, *found;
    } rows[] = {
        {"", "p00000000"},
        {"o", "p00000000"},
        {"p", "p00000000"},
        {"p0000001", "p00000010"},
        {"p00000010", "p00000010"},
        {"p000000100", "p00000011"},
        {"p0000001/", "p00000010"},
        {"p0000001:", "p00000020"},
        {"p00000099", "p00000099"},
        {"p000000990", NULL},
        {"p00000100", NULL},
        {"p1", NULL},
        {"pa", NULL},
        {"q", NULL},
        {"p0000 9", "p00000000"},
        {"p000000099", "p00000010"},
    };
    struct rg_synthetic *set = make_set("data/p:100:1");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_store_entry entry;
        int rc = rg_synthetic_seek(set, rg_text_slice(rows[i].from), entry.name, &entry.name_size);
        if (rows[i].found == NULL) {
            RG_CHECK_EQ(rc, -ENOENT);
        } else {
            RG_CHECK_EQ(rc, 0);
            RG_CHECK_MEM(entry.name, entry.name_size, rows[i].found, strlen(rows[i].found));
        }
    }
    rg_synthetic_destroy(set);
}

static void test_hidden_objects_are_gone(void)
{
    struct rg_store_object object;
    struct rg_store_entry entry;
    struct rg_synthetic *set = make_set("data/p:100:1");
    RG_CHECK_EQ(rg_synthetic_hide(set, rg_text_slice("p00000000")), 0);
    RG_CHECK_EQ(rg_synthetic_hide(set, rg_text_slice("p00000000")), -ENOENT);
    RG_CHECK_EQ(rg_synthetic_hide(set, rg_text_slice("p00000099")), 0);
    RG_CHECK_EQ(rg_synthetic_open(set, rg_text_slice("p00000000"), &object), -ENOENT);
    RG_CHECK_EQ(rg_synthetic_seek(set, rg_text_slice(""), entry.name, &entry.name_size), 0);
    RG_CHECK_MEM(entry.name, entry.name_size, "p00000001", 9);
    RG_CHECK_EQ(rg_synthetic_seek(set, rg_text_slice("p00000099"), entry.name, &entry.name_size),
                -ENOENT);
    rg_synthetic_destroy(set);
}

static void test_bad_specs_are_named_with_the_right_form(void)
{
    static const char *const specs[] = {
        "",
        "bucket",
        "bucket/p",
        "bucket/p:1",
        "b/p:1:1",
        "Data/p:1:1",
        "data/p:0:1",
        "data/p:-1:1",
        "data/p:x:1",
        "data/p:1:",
        "data/p:1:1XB",
        "data/p:1:9999999999999999999",
        "data/p:1:6TiB",
        "data/p:1:1:x",
        "data/\n:1:1",
        "data/\xff:1:1",
        "data/p:2000000000000:1",
        "data:1:1/p",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(specs); i++) {
        struct rg_synthetic *set;
        struct rg_h1_slice bucket;
        char error[512] = "";
        if (rg_synthetic_create(&set, specs[i], &bucket, error, sizeof(error)) != -EINVAL) {
            rg_test_fail(__FILE__, __LINE__, "'%s' is taken", specs[i]);
        }
        RG_CHECK(strstr(error, specs[i]) != NULL);
        RG_CHECK(strstr(error, "BUCKET/PREFIX:COUNT:SIZE") != NULL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_computed_checksum_is_that_of_the_bytes),
        RG_TEST(test_bytes_depend_on_name_and_offset_only),
        RG_TEST(test_another_size_is_another_generation),
        RG_TEST(test_names_have_eight_digits_or_as_many_as_it_takes),
        RG_TEST(test_seek_finds_the_first_name_not_before),
        RG_TEST(test_hidden_objects_are_gone),
        RG_TEST(test_bad_specs_are_named_with_the_right_form),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
