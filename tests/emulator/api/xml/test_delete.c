/* Many objects deleted in one request. */
#include "emulator/api/xml/delete.h"

#include "tests/emulator/driver.h"

static void delete_listed(const char *xml)
{
    rg_driver_send(api, &reply,
                   "POST /bucket?delete HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(xml), xml);
}

static unsigned status_of(const char *path)
{
    get(path);
    return reply.status;
}

static void test_listed_objects_are_deleted(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a%26b", "x");
    put_xml("/bucket/c", "x");
    put_xml("/bucket/d", "x");
    delete_listed("<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>none</Key></Object>"
                  "<Object><Key>d</Key><VersionId>1</VersionId></Object></Delete>");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("<Deleted><Key>a&amp;b</Key></Deleted><Deleted><Key>none</Key></Deleted>");
    RG_CHECK_EQ(status_of("/bucket/a%26b"), 404);
    RG_CHECK_EQ(status_of("/bucket/c"), 200);
    RG_CHECK_EQ(status_of("/bucket/d"), 200); /* Another version was meant. */
    delete_listed("<Delete><Quiet>true</Quiet><Object><Key>c</Key></Object></Delete>");
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK(strstr(reply.body.data, "<Deleted>") == NULL);
    RG_CHECK_EQ(status_of("/bucket/c"), 404);
    close_api();
}

static void test_what_is_no_list(void)
{
    static const char *const bad[] = {
        "",
        "<Delete/>",
        "<Delete><Object/></Delete>",
        "<Delete><Object><Key>o</Key>",
        "<Delete><Object><Key>n</Key><VersionId>x</VersionId></Object></Delete>",
    };
    open_api(NULL, 0);
    put_xml("/bucket/n", "x");
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        delete_listed(bad[i]);
        RG_CHECK_EQ(reply.status, 400);
        check_body_has("<Code>MalformedXML</Code>");
    }
    RG_CHECK_EQ(status_of("/bucket/n"), 200);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_listed_objects_are_deleted),
        RG_TEST(test_what_is_no_list),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
