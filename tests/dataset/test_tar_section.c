/* Members become samples as WebDataset has them. */
#include "dataset/tar_section.h"
#include "tests/support/test.h"

static struct rg_tar_section section;

static void begin(void)
{
    RG_CHECK_EQ(rg_tar_section_init(&section), 0);
}

static int add(const char *name, uint64_t offset, uint64_t size)
{
    struct rg_tar_member member = {.name = name, .offset = offset, .size = size};
    return rg_tar_section_add(&section, &member);
}

static void check_split(const char *name, const char *key, const char *extension)
{
    size_t key_size, extension_size;
    bool is_part = rg_tar_name_split(name, &key_size, &extension_size);
    RG_CHECK_EQ(is_part, key != NULL);
    if (is_part) {
        RG_CHECK_MEM(name, key_size, key, strlen(key));
        RG_CHECK_MEM(name + key_size + 1, extension_size, extension, strlen(extension));
    }
}

/* The expected are what re.match(r"^((?:.*" "/|)[^.]+)[.]([^/]*)$", name) gives in Python. */
static void test_names_are_cut_as_webdataset_does(void)
{
    check_split("a.jpg", "a", "jpg");
    check_split("a/b/c.seg.png", "a/b/c", "seg.png");
    check_split("a.b/c.jpg", "a.b/c", "jpg");
    check_split("d/.hidden", "d/", "hidden");
    check_split("a/b/.x", "a/b/", "x");
    check_split("a..b", "a", ".b");
    check_split("d/e.", "d/e", "");
    check_split("./x.jpg", "./x", "jpg");
    check_split("_y_.z", "_y_", "z");
    check_split("x", NULL, NULL);
    check_split("", NULL, NULL);
    check_split(".c", NULL, NULL);
    check_split("a.b/c", NULL, NULL);
    check_split("a.b/.c", NULL, NULL);
    check_split("a.b/", NULL, NULL);
    check_split("__meta__", NULL, NULL);
    check_split("__meta__/a.txt", NULL, NULL);
    check_split("__a__.txt", "__a__", "txt");
    check_split("b/__a__/c.txt", "b/__a__/c", "txt");
}

static struct rg_tar_sample sample;

static void check_next(struct rg_tar_decoder *decoder, const char *key, uint64_t offset,
                       uint64_t size, uint32_t parts)
{
    RG_CHECK(rg_tar_decode(decoder, &sample));
    RG_CHECK_STR(sample.key, key);
    RG_CHECK_EQ(sample.offset, offset);
    RG_CHECK_EQ(sample.size, size);
    RG_CHECK_EQ(sample.part_count, parts);
}

static void test_members_that_follow_each_other_are_a_sample(void)
{
    begin();
    RG_CHECK_EQ(add("a.JPG", 512, 100), 0);
    RG_CHECK_EQ(add("nodot", 1536, 100), 0);
    RG_CHECK_EQ(add("a.cls", 2560, 1), 0);
    RG_CHECK_EQ(add("b.jpg", 4096, 0), 0);
    RG_CHECK_EQ(add("a.jpg", 4608, 7), 0);
    RG_CHECK_EQ(rg_tar_section_end(&section), 0);
    RG_CHECK_EQ(section.sample_count, 3);
    RG_CHECK_EQ(section.block_count, 1);
    struct rg_tar_decoder decoder = {.at = section.data, .limit = section.data + section.size};
    sample = (struct rg_tar_sample){0};
    check_next(&decoder, "a", 512, 2049, 2);
    RG_CHECK_MEM(sample.parts[0].extension, sample.parts[0].extension_size, "jpg", 3);
    RG_CHECK_EQ(sample.parts[1].offset, 2048);
    RG_CHECK_EQ(sample.parts[1].size, 1);
    check_next(&decoder, "b", 4096, 0, 1);
    check_next(&decoder, "a", 4608, 7, 1);
    RG_CHECK(!rg_tar_decode(&decoder, &sample));
    rg_tar_section_fini(&section);
}

static void test_blocks_begin_anew(void)
{
    char name[32];
    begin();
    for (uint64_t i = 0; i < 130; i++) {
        snprintf(name, sizeof(name), "key-%05d.txt", (int)i);
        RG_CHECK_EQ(add(name, 512 + i * 1024, i), 0);
    }
    RG_CHECK_EQ(rg_tar_section_end(&section), 0);
    RG_CHECK_EQ(section.block_count, 3);
    RG_CHECK_EQ(section.sample_count, 130);
    const struct rg_tar_section_block *last = &section.blocks[2];
    RG_CHECK_EQ(last->offset + last->size, section.size);
    struct rg_tar_decoder decoder = {
        .at = section.data + last->offset,
        .limit = section.data + last->offset + last->size,
    };
    sample = (struct rg_tar_sample){0};
    check_next(&decoder, "key-00128", 512 + 128 * 1024, 128, 1);
    check_next(&decoder, "key-00129", 512 + 129 * 1024, 129, 1);
    /* Little: key, size and place are told by their differences. */
    RG_CHECK(section.size < 130 * 9);
    rg_tar_section_fini(&section);
}

static void test_what_cannot_be_a_sample_is_said(void)
{
    char name[400];
    begin();
    RG_CHECK_EQ(add("a.jpg", 512, 1), 0);
    RG_CHECK_EQ(add("a.JPG", 1536, 1), -EBADMSG);
    RG_CHECK_STR(section.error, "sample \"a\" has \"jpg\" twice");
    rg_tar_section_fini(&section);
    begin();
    for (uint64_t i = 0; i < RG_TAR_MEMBERS_MAX; i++) {
        snprintf(name, sizeof(name), "a.%d", (int)i);
        RG_CHECK_EQ(add(name, 512 + 512 * i, 0), 0);
    }
    RG_CHECK_EQ(add("a.more", 512 * 100, 0), -EBADMSG);
    RG_CHECK_STR(section.error, "sample \"a\" has more than 64 members");
    rg_tar_section_fini(&section);
    begin();
    memset(name, 'e', 258);
    memcpy(name, "a.", 2);
    name[258] = '\0';
    RG_CHECK_EQ(add(name, 512, 1), -EBADMSG);
    RG_CHECK(strstr(section.error, "has 256 bytes, above the limit of 255") != NULL);
    rg_tar_section_fini(&section);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_names_are_cut_as_webdataset_does),
        RG_TEST(test_members_that_follow_each_other_are_a_sample),
        RG_TEST(test_blocks_begin_anew),
        RG_TEST(test_what_cannot_be_a_sample_is_said),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
