/* Finding the members of archives: of those in the fuzz corpus, which Python's tarfile and GNU tar
 * made and tarfile listed, whole, byte by byte and at random splits; and of headers made here. */
#include "dataset/tar_parser.h"
#include "tests/support/tar_header.h"
#include "tests/support/test.h"

#include <inttypes.h>

#define FILE_SIZE_MAX RG_KIB(64)

static struct rg_tar_parser parser;

/* One archive that is put together here. */
static uint8_t archive[FILE_SIZE_MAX];
static size_t archive_size;

static void checksum_set(uint8_t *block)
{
    rg_test_tar_checksum(block, 0);
}

static uint8_t *header_add(const char *name, char type, uint64_t size)
{
    uint8_t *block = archive + archive_size;
    rg_test_tar_header(block, name, type, size);
    archive_size += RG_TAR_BLOCK_SIZE;
    return block;
}

static void body_add(const char *text, size_t size)
{
    memset(archive + archive_size, 0, size + RG_TAR_BLOCK_SIZE);
    memcpy(archive + archive_size, text, size);
    archive_size += (size + RG_TAR_BLOCK_SIZE - 1) / RG_TAR_BLOCK_SIZE * RG_TAR_BLOCK_SIZE;
}

static void end_add(void)
{
    memset(archive + archive_size, 0, 2 * RG_TAR_BLOCK_SIZE);
    archive_size += 2 * RG_TAR_BLOCK_SIZE;
}

/* Feeds pieces of at most `piece` bytes (0: of random sizes) until a member, the end or an error.
 */
static int next(size_t piece, struct rg_tar_member *out_member)
{
    for (;;) {
        size_t at = (size_t)RG_MIN(parser.offset, (uint64_t)archive_size);
        size_t most = piece != 0 ? piece : 1 + rg_test_random_below(2000);
        int rc =
            rg_tar_parser_feed(&parser, archive + at, RG_MIN(most, archive_size - at), out_member);
        if (rc != RG_TAR_RESULT_MORE) {
            return rc;
        }
        if (at == archive_size) {
            rc = rg_tar_parser_finish(&parser, archive_size);
            return rc < 0 ? rc : RG_TAR_RESULT_END;
        }
    }
}

static void check_member(const char *name, uint64_t offset, uint64_t size)
{
    struct rg_tar_member member;
    RG_CHECK_EQ(next(SIZE_MAX, &member), RG_TAR_RESULT_MEMBER);
    RG_CHECK_STR(member.name, name);
    RG_CHECK_EQ(member.offset, offset);
    RG_CHECK_EQ(member.size, size);
}

static void check_end(void)
{
    struct rg_tar_member member;
    RG_CHECK_EQ(next(SIZE_MAX, &member), RG_TAR_RESULT_END);
    RG_CHECK_EQ(rg_tar_parser_finish(&parser, archive_size), 0);
}

/* Members may come before it. */
static void check_fails(const char *text)
{
    struct rg_tar_member member;
    int rc;
    rg_tar_parser_init(&parser);
    while ((rc = next(SIZE_MAX, &member)) == RG_TAR_RESULT_MEMBER) {
    }
    RG_CHECK_EQ(rc, -EBADMSG);
    RG_CHECK_STR(parser.error, text);
    RG_CHECK_EQ(rg_tar_parser_feed(&parser, archive, 1, &member), -EBADMSG);
    RG_CHECK_EQ(rg_tar_parser_finish(&parser, archive_size), -EBADMSG);
}

static void begin(void)
{
    archive_size = 0;
    rg_tar_parser_init(&parser);
}

static FILE *tests_open(const char *folder, const char *name)
{
    const char *tests = getenv("RINGEST_TESTS");
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s/%s", tests != NULL ? tests : "tests", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        rg_test_fail(__FILE__, __LINE__, "%s cannot be read", path);
    }
    return file;
}

static void archive_load(const char *name)
{
    FILE *file = tests_open("fuzz/corpus/tar", name);
    archive_size = fread(archive, 1, sizeof(archive), file);
    RG_CHECK(archive_size > 0 && archive_size < sizeof(archive));
    fclose(file);
}

/* Compares every archive with its lines "FILE OFFSET SIZE NAME" of the list. */
static void check_list(size_t piece)
{
    FILE *list = tests_open("dataset", "tar_members.txt");
    char line[1024], file[64], current[64] = "", name[512];
    uint64_t offset, size, lines = 0;
    struct rg_tar_member member;
    while (fgets(line, sizeof(line), list) != NULL) {
        RG_CHECK_EQ(sscanf(line, "%63s %" SCNu64 " %" SCNu64 " %511s", file, &offset, &size, name),
                    4);
        if (strcmp(file, current) != 0) {
            RG_CHECK(current[0] == '\0' || next(piece, &member) == RG_TAR_RESULT_END);
            strcpy(current, file);
            archive_load(file);
            rg_tar_parser_init(&parser);
        }
        RG_CHECK_EQ(next(piece, &member), RG_TAR_RESULT_MEMBER);
        RG_CHECK_STR(member.name, name);
        RG_CHECK_EQ(member.offset, offset);
        RG_CHECK_EQ(member.size, size);
        lines++;
    }
    RG_CHECK_EQ(next(piece, &member), RG_TAR_RESULT_END);
    RG_CHECK_EQ(lines, 36);
    fclose(list);
}

static void test_archives_of_others_whole(void)
{
    check_list(SIZE_MAX);
}

static void test_archives_of_others_byte_by_byte(void)
{
    check_list(1);
}

static void test_archives_of_others_at_random_splits(void)
{
    for (int i = 0; i < 20; i++) {
        check_list(0);
    }
}

static void test_what_members_hold_is_not_asked_for(void)
{
    begin();
    header_add("large", '0', UINT64_C(5) << 30);
    struct rg_tar_member member;
    RG_CHECK_EQ(rg_tar_parser_feed(&parser, archive, archive_size, &member), RG_TAR_RESULT_MEMBER);
    RG_CHECK_EQ(parser.offset, (UINT64_C(5) << 30) + 512);
    RG_CHECK_EQ(rg_tar_parser_feed(&parser, NULL, 0, &member), RG_TAR_RESULT_MORE);
}

static void test_sizes_in_base_256(void)
{
    begin();
    uint8_t *block = header_add("a", '0', 0);
    static const uint8_t size[12] = {0x80, 0, 0, 0, 0, 0, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab};
    memcpy(block + 124, size, sizeof(size));
    checksum_set(block);
    check_member("a", 512, UINT64_C(0x123456789ab));
    begin();
    block = header_add("a", '0', 0);
    memset(block + 124, 0xff, 12); /* -1 */
    checksum_set(block);
    check_fails("at byte 0: a member whose size is negative, too large or not a number");
}

static void test_types_that_hold_nothing_are_passed_over(void)
{
    static const char filler[600] = "z";
    begin();
    for (char type = '1'; type <= '6'; type++) {
        header_add("x.y", type, 1000);
    }
    header_add("contiguous", '7', 3);
    body_add("abc", 3);
    header_add("unknown", 'Z', 600);
    body_add(filler, sizeof(filler));
    header_add("folder/", '\0', 0);
    header_add("old", '\0', 0);
    end_add();
    check_member("contiguous", 7 * 512, 3);
    check_member("old", 13 * 512, 0);
    check_end();
}

static void test_a_prefix_counts_in_ustar_only(void)
{
    begin();
    uint8_t *block = header_add("name", '0', 0);
    strcpy((char *)block + 345, "folder");
    checksum_set(block);
    block = header_add("name", '0', 0);
    memcpy(block + 257, "ustar  ", 8);
    strcpy((char *)block + 345, "folder");
    checksum_set(block);
    end_add();
    check_member("folder/name", 512, 0);
    check_member("name", 1024, 0);
    check_end();
}

static void test_names_may_use_all_of_their_fields(void)
{
    char name[257];
    begin();
    memset(name, 'n', 100);
    name[100] = '\0';
    uint8_t *block = header_add(name, '0', 0);
    memset(block + 345, 'p', 155);
    checksum_set(block);
    memset(name, 'p', 155);
    name[155] = '/';
    memset(name + 156, 'n', 100);
    name[256] = '\0';
    check_member(name, 512, 0);
}

static void test_pax_headers(void)
{
    begin();
    header_add("g", 'g', 0);
    header_add("x", 'x', 44);
    body_add("12 path=a/b\n22 comment=with\nbreak\n10 size=3\n", 44);
    header_add("short", '0', 0);
    body_add("abc", 3);
    header_add("behind", '0', 0);
    end_add();
    check_member("a/b", 4 * 512, 3);
    check_member("behind", 6 * 512, 0);
    check_end();
}

static void test_pax_headers_that_are_wrong(void)
{
    static const struct {
        const char *text, *error;
        char type;
    } cases[] = {
        {"12 path=a/b", "at byte 512: a pax header whose records do not fit together", 'x'},
        {"12 path=a/b\n12 ", "at byte 512: a pax header whose records do not fit together", 'x'},
        {"0 path=a/b\n", "at byte 512: a pax header whose records do not fit together", 'x'},
        {"11 path=a/b\n", "at byte 512: a pax header whose records do not fit together", 'x'},
        {"99999999999999999999 a=b\n",
         "at byte 512: a pax header whose records do not fit together", 'x'},
        {"8 nopes\n", "at byte 512: a pax record without \"=\"", 'x'},
        {"11 size=-5\n", "at byte 512: a pax record whose size is not a number", 'x'},
        {"8 size=\n", "at byte 512: a pax record whose size is not a number", 'x'},
        {"22 GNU.sparse.major=1\n", "at byte 512: a sparse file; make the archive without --sparse",
         'x'},
        {"12 path=a/b\n", "at byte 512: a global pax header that sets the path of all members",
         'g'},
        {"10 size=1\n", "at byte 512: a global pax header that sets the size of all members", 'g'},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        begin();
        header_add("x", cases[i].type, strlen(cases[i].text));
        body_add(cases[i].text, strlen(cases[i].text));
        header_add("name", '0', 0);
        end_add();
        check_fails(cases[i].error);
    }
    begin();
    header_add("x", 'x', 12);
    body_add("12 path=a\0b\n", 12);
    check_fails("at byte 512: a name with a NUL in it");
}

static void test_limits(void)
{
    begin();
    header_add("x", 'x', RG_TAR_EXTENDED_SIZE_MAX + 1);
    check_fails("at byte 512: an extended header of 65537 bytes, above the limit of 65536");
    begin();
    header_add("L", 'L', RG_TAR_NAME_SIZE_MAX + 1);
    char name[RG_TAR_NAME_SIZE_MAX + 1];
    memset(name, 'n', sizeof(name));
    body_add(name, sizeof(name));
    header_add("short", '0', 0);
    check_fails("at byte 512: a name of 4097 bytes, above the limit of 4096");
}

static void test_sparse_and_split_files_are_refused(void)
{
    begin();
    header_add("holes", 'S', 100);
    check_fails("at byte 0: \"holes\" is a sparse file; make the archive without --sparse");
    begin();
    header_add("first", '0', 0);
    header_add("rest", 'M', 100);
    check_fails("at byte 512: \"rest\" is a part of a file in several archives, which is not read");
}

static void test_every_cut_is_noticed(void)
{
    archive_load("tool-gnu.tar");
    size_t whole = archive_size - 1024;
    for (archive_size = 0; archive_size < whole + RG_TAR_BLOCK_SIZE; archive_size++) {
        struct rg_tar_member member;
        int rc;
        rg_tar_parser_init(&parser);
        while ((rc = next(SIZE_MAX, &member)) == RG_TAR_RESULT_MEMBER) {
        }
        RG_CHECK_EQ(rc, -EBADMSG);
        RG_CHECK(strstr(parser.error, archive_size == 0 ? "empty" : "cut off") != NULL);
    }
    /* One block of zeros is enough. */
    rg_tar_parser_init(&parser);
    struct rg_tar_member member;
    int rc;
    while ((rc = next(SIZE_MAX, &member)) == RG_TAR_RESULT_MEMBER) {
    }
    RG_CHECK_EQ(rc, RG_TAR_RESULT_END);
}

/* But in the checksum itself, whose spaces and NUL may be either. */
static void test_every_flipped_bit_of_a_header_is_noticed(void)
{
    for (size_t bit = 0; bit < 148 * 8; bit++) {
        begin();
        header_add("name.txt", '0', 5);
        archive[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        struct rg_tar_member member;
        RG_CHECK_EQ(next(SIZE_MAX, &member), -EBADMSG);
        RG_CHECK(strstr(parser.error, "at byte 0: it is ") == parser.error);
    }
}

static void test_checksums_of_signed_bytes(void)
{
    begin();
    uint8_t *block = header_add("\xc3\xa9\xc3\xa9", '0', 0);
    rg_test_tar_checksum(block, 1);
    check_member("\xc3\xa9\xc3\xa9", 512, 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_archives_of_others_whole),
        RG_TEST(test_archives_of_others_byte_by_byte),
        RG_TEST(test_archives_of_others_at_random_splits),
        RG_TEST(test_what_members_hold_is_not_asked_for),
        RG_TEST(test_sizes_in_base_256),
        RG_TEST(test_types_that_hold_nothing_are_passed_over),
        RG_TEST(test_a_prefix_counts_in_ustar_only),
        RG_TEST(test_names_may_use_all_of_their_fields),
        RG_TEST(test_pax_headers),
        RG_TEST(test_pax_headers_that_are_wrong),
        RG_TEST(test_limits),
        RG_TEST(test_sparse_and_split_files_are_refused),
        RG_TEST(test_every_cut_is_noticed),
        RG_TEST(test_every_flipped_bit_of_a_header_is_noticed),
        RG_TEST(test_checksums_of_signed_bytes),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
