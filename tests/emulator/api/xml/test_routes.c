/* The XML API: listings. */
#include "tests/emulator/driver.h"

static void test_listing_by_xml(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a/1", "1");
    put_xml("/bucket/a/2", "22");
    put_xml("/bucket/b%26c", "");
    get("/bucket?list-type=2&delimiter=/&max-keys=1");
    check_field("content-type", "application/xml; charset=UTF-8");
    check_body_has("<IsTruncated>true</IsTruncated>");
    check_body_has("<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>");
    check_body_has("<NextContinuationToken>YiZj</NextContinuationToken>");
    get("/bucket?list-type=2&delimiter=/&max-keys=1&continuation-token=YiZj");
    check_body_has("<Contents><Key>b&amp;c</Key><Generation>");
    check_body_has("<ETag>&quot;");
    check_body_has("<Size>0</Size>");
    check_body_has("<IsTruncated>false</IsTruncated>");
    get("/bucket?list-type=2&start-after=a/1&encoding-type=url");
    check_body_has("<Key>a/2</Key>");
    check_body_has("<Key>b%26c</Key>");
    RG_CHECK(strstr(reply.body.data, "<Key>a/1") == NULL);
    get("/bucket?delimiter=/&max-keys=1");
    check_body_has("<NextMarker>a/</NextMarker>");
    get("/bucket/?delimiter=/&marker=a/");
    RG_CHECK(strstr(reply.body.data, "<Prefix>a/") == NULL);
    check_body_has("<Key>b&amp;c</Key>");
    get("/bucket?max-keys=0");
    check_body_has("<IsTruncated>false</IsTruncated>");
    RG_CHECK(strstr(reply.body.data, "<Contents>") == NULL);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_listing_by_xml),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
