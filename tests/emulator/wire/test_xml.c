/* Small documents, and what is refused. */
#include "emulator/wire/xml.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

static int on_start(void *context, const char *name)
{
    char *log = context;
    sprintf(log + strlen(log), "<%s", name);
    return 0;
}

static int on_end(void *context, const char *name, struct rg_h1_slice text)
{
    char *log = context;
    sprintf(log + strlen(log), ">%s:%.*s;", name, (int)text.size, text.data);
    return strcmp(name, "stop") == 0 ? -ENODATA : 0;
}

static int read_text(const char *text, char *log)
{
    const struct rg_xml_sink sink = {log, on_start, on_end};
    log[0] = '\0';
    return rg_xml_read(rg_text_slice(text), &sink);
}

static void test_elements_and_their_texts(void)
{
    char log[256];
    RG_CHECK_EQ(read_text("<?xml version='1.0'?><a xmlns='u' xmlns:p='v'><b>x &amp; &lt;y</b>"
                          "<p:c><![CDATA[<z>]]></p:c></a>",
                          log),
                0);
    RG_CHECK_STR(log, "<a<b>b:x & <y;<c>c:<z>;>a:;");
    RG_CHECK_EQ(read_text("<a><stop/><b/></a>", log), -ENODATA);
    RG_CHECK_STR(log, "<a<stop>stop:;");
}

static void test_what_is_refused(void)
{
    static const char *const bad[] = {
        "",
        "text",
        "<a>",
        "<a></b>",
        "<a/><b/>",
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        "<a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a>",
        "<a>\xff</a>",
    };
    char log[256];
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(read_text(bad[i], log), -EBADMSG);
    }
    char *large = malloc(RG_XML_TEXT_SIZE_MAX + 16), *log_large = malloc(RG_XML_TEXT_SIZE_MAX + 64);
    RG_CHECK(large != NULL && log_large != NULL);
    sprintf(large, "<a>%0*d</a>", RG_XML_TEXT_SIZE_MAX, 0);
    RG_CHECK_EQ(read_text(large, log_large), 0);
    sprintf(large, "<a>%0*d</a>", RG_XML_TEXT_SIZE_MAX + 1, 0);
    RG_CHECK_EQ(read_text(large, log_large), -EBADMSG);
    free(large);
    free(log_large);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_elements_and_their_texts),
        RG_TEST(test_what_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
