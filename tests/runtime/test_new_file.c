/* Files that appear as a whole: what is there before and after, with which mode, and what is left.
 */
#include "runtime/new_file.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[128];

static void folder_make(void)
{
    strcpy(folder, "/tmp/ringest-new-file-XXXXXX");
    RG_CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/file", folder);
}

static int files_in_folder(void)
{
    DIR *dir = opendir(folder);
    int count = 0;
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

static void folder_remove(void)
{
    unlink(path);
    RG_CHECK_EQ(rmdir(folder), 0);
}

static void check_content(const char *want)
{
    char text[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    RG_CHECK(fd >= 0);
    RG_CHECK(read(fd, text, sizeof(text) - 1) >= 0);
    close(fd);
    RG_CHECK_STR(text, want);
}

static void test_it_takes_the_place_of_what_is_there(void)
{
    struct rg_new_file file;
    folder_make();
    for (int i = 0; i < 2; i++) {
        const char *text = i == 0 ? "one" : "two";
        RG_CHECK_EQ(rg_new_file_open(&file, path), 0);
        RG_CHECK_EQ(write(file.fd, text, 3), 3);
        if (i > 0) {
            check_content("one");
        } else {
            RG_CHECK(access(path, F_OK) < 0);
        }
        RG_CHECK_EQ(rg_new_file_publish(&file), 0);
        check_content(text);
        RG_CHECK_EQ(files_in_folder(), 1);
    }
    folder_remove();
}

static void test_abandoned_it_leaves_what_is_there(void)
{
    struct rg_new_file first, second;
    folder_make();
    RG_CHECK_EQ(rg_new_file_open(&first, path), 0);
    RG_CHECK_EQ(rg_new_file_open(&second, path), 0);
    RG_CHECK_EQ(files_in_folder(), 2);
    RG_CHECK_EQ(write(first.fd, "one", 3), 3);
    RG_CHECK_EQ(rg_new_file_publish(&first), 0);
    rg_new_file_abandon(&second);
    check_content("one");
    RG_CHECK_EQ(files_in_folder(), 1);
    folder_remove();
}

static void test_its_mode_is_that_of_the_umask(void)
{
    static const mode_t masks[] = {0, 022, 027, 077};
    struct rg_new_file file;
    struct stat stat;
    folder_make();
    for (size_t i = 0; i < RG_ARRAY_LEN(masks); i++) {
        mode_t before = umask(masks[i]);
        RG_CHECK_EQ(rg_new_file_open(&file, path), 0);
        umask(before);
        RG_CHECK_EQ(fstat(file.fd, &stat), 0);
        RG_CHECK_EQ(stat.st_mode & 0777, 0666 & ~masks[i]);
        RG_CHECK_EQ(rg_new_file_publish(&file), 0);
        RG_CHECK_EQ(lstat(path, &stat), 0);
        RG_CHECK_EQ(stat.st_mode & 0777, 0666 & ~masks[i]);
        unlink(path);
    }
    folder_remove();
}

static void test_it_keeps_the_mode_of_what_it_replaces(void)
{
    static const mode_t modes[] = {0600, 0640, 0666, 0444};
    struct rg_new_file file;
    struct stat stat;
    folder_make();
    mode_t before = umask(022);
    for (size_t i = 0; i < RG_ARRAY_LEN(modes); i++) {
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        RG_CHECK_EQ(chmod(path, modes[i]), 0);
        RG_CHECK_EQ(rg_new_file_open(&file, path), 0);
        RG_CHECK_EQ(fstat(file.fd, &stat), 0);
        RG_CHECK_EQ(stat.st_mode & 0777, modes[i]);
        RG_CHECK_EQ(rg_new_file_publish(&file), 0);
        RG_CHECK_EQ(lstat(path, &stat), 0);
        RG_CHECK_EQ(stat.st_mode & 0777, modes[i]);
        unlink(path);
    }
    umask(before);
    folder_remove();
}

static void test_it_takes_the_place_of_files_only(void)
{
    struct rg_new_file file;
    char link[192];
    folder_make();
    RG_CHECK_EQ(mkfifo(path, 0600), 0);
    RG_CHECK_EQ(rg_new_file_open(&file, path), -EEXIST);
    snprintf(link, sizeof(link), "%s/link", folder);
    RG_CHECK_EQ(symlink(path, link), 0);
    RG_CHECK_EQ(rg_new_file_open(&file, link), -EEXIST);
    RG_CHECK_EQ(files_in_folder(), 2);
    unlink(path);
    RG_CHECK_EQ(rg_new_file_open(&file, link), 0);
    RG_CHECK_EQ(rg_new_file_publish(&file), 0);
    RG_CHECK_EQ(files_in_folder(), 1);
    unlink(link);
    folder_remove();
}

/* As /dev/stdout of a program whose output goes to a file. */
static void test_it_leaves_links_to_streams(void)
{
    struct rg_new_file file;
    struct stat stat;
    char link[192];
    folder_make();
    int before = dup(STDIN_FILENO), fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    RG_CHECK(before >= 0 && fd >= 0);
    RG_CHECK_EQ(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    snprintf(link, sizeof(link), "%s/link", folder);
    RG_CHECK_EQ(symlink("/proc/self/fd/0", link), 0);
    RG_CHECK_EQ(rg_new_file_open(&file, link), -EEXIST);
    RG_CHECK_EQ(files_in_folder(), 2);
    RG_CHECK_EQ(lstat(link, &stat), 0);
    RG_CHECK(S_ISLNK(stat.st_mode));
    RG_CHECK_EQ(dup2(before, STDIN_FILENO), STDIN_FILENO);
    close(before);
    close(fd);
    unlink(link);
    folder_remove();
}

static void test_a_place_where_it_cannot_be(void)
{
    struct rg_new_file file;
    folder_make();
    snprintf(path, sizeof(path), "%s/none/file", folder);
    RG_CHECK_EQ(rg_new_file_open(&file, path), -ENOENT);
    snprintf(path, sizeof(path), "%s/sub", folder);
    RG_CHECK_EQ(mkdir(path, 0777), 0);
    RG_CHECK_EQ(rg_new_file_open(&file, path), -EISDIR);
    RG_CHECK_EQ(files_in_folder(), 1);
    RG_CHECK_EQ(rmdir(path), 0);
    folder_remove();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_it_takes_the_place_of_what_is_there),
        RG_TEST(test_abandoned_it_leaves_what_is_there),
        RG_TEST(test_its_mode_is_that_of_the_umask),
        RG_TEST(test_it_keeps_the_mode_of_what_it_replaces),
        RG_TEST(test_it_takes_the_place_of_files_only),
        RG_TEST(test_it_leaves_links_to_streams),
        RG_TEST(test_a_place_where_it_cannot_be),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
