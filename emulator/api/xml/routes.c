/* What each XML route answers to each method; see routes.h. */
#include "emulator/api/xml/routes.h"

#include "emulator/api/media.h"
#include "emulator/api/resumable.h"
#include "emulator/api/rewrite.h"
#include "emulator/api/upload.h"
#include "emulator/api/xml/delete.h"
#include "emulator/api/xml/multipart.h"
#include "emulator/faults/rules.h"
#include "emulator/store/listing.h"

#include <errno.h>
#include <inttypes.h>

#define XML_TYPE "application/xml; charset=UTF-8"
#define XML_HEAD "<?xml version='1.0' encoding='UTF-8'?>"
#define XML_NAMESPACE "http://doc.s3.amazonaws.com/2006-03-01"

static void list_buckets(struct rg_server_call *call)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_h1_slice from = {"", 0};
    char next[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    rg_text_append_str(text,
                       XML_HEAD "<ListAllMyBucketsResult xmlns='" XML_NAMESPACE "'><Buckets>");
    struct rg_bucket *bucket;
    struct rg_bucket_info info;
    while ((bucket = rg_store_seek_bucket(rg_service_of(call)->store, from)) != NULL) {
        struct rg_h1_slice name = rg_bucket_name(bucket);
        rg_text_append_str(text, "<Bucket>");
        rg_text_append_element(text, "Name", name);
        rg_bucket_get_info(bucket, &info);
        rg_text_append_time(text, "CreationDate", info.created_us);
        rg_text_append_str(text, "</Bucket>");
        memcpy(next, name.data, name.size);
        next[name.size] = '\0';
        from = (struct rg_h1_slice){next, name.size + 1};
    }
    rg_text_append_str(text, "</Buckets></ListAllMyBucketsResult>");
    rg_reply_text(call, 200, XML_TYPE);
}

/* A page in the making. Elements of one kind stay together, because some parsers expect that. */
struct page {
    const struct rg_api_request *request;
    bool version_2, encodes_url;
    struct rg_h1_slice start; /* start-after or marker. */
    int64_t page_max;
    struct rg_text contents, prefixes;
    char last[RG_STORE_NAME_SIZE_MAX]; /* The last name or prefix: the marker of the next page. */
    uint32_t last_size;
};

static void append_name(struct rg_text *text, const struct page *page, const char *element,
                        struct rg_h1_slice name)
{
    if (!page->encodes_url) {
        rg_text_append_element(text, element, name);
        return;
    }
    rg_text_printf(text, "<%s>", element);
    rg_text_append_percent(text, name.data, name.size);
    rg_text_printf(text, "</%s>", element);
}

static void append_contents(struct page *page, struct rg_h1_slice name,
                            const struct rg_store_object_info *info)
{
    char etag[RG_REPLY_ETAG_SIZE_MAX + 3];
    rg_reply_format_etag(etag, info);
    rg_text_append_str(&page->contents, "<Contents>");
    append_name(&page->contents, page, "Key", name);
    rg_text_printf(&page->contents,
                   "<Generation>%" PRId64 "</Generation><MetaGeneration>%" PRId64
                   "</MetaGeneration>",
                   info->generation, info->metageneration);
    rg_text_append_time(&page->contents, "LastModified", info->updated_us);
    rg_text_append_element(&page->contents, "ETag", rg_text_slice(etag));
    rg_text_printf(&page->contents, "<Size>%" PRIu64 "</Size></Contents>", info->size);
}

static int list_page(struct rg_api_listing *listing, struct page *page)
{
    int kind;
    while ((kind = rg_api_listing_next(listing)) > RG_LISTING_END) {
        struct rg_h1_slice name = {listing->entry.name, listing->entry.name_size};
        if (kind == RG_LISTING_PREFIX) {
            name = listing->group;
            rg_text_append_str(&page->prefixes, "<CommonPrefixes>");
            append_name(&page->prefixes, page, "Prefix", name);
            rg_text_append_str(&page->prefixes, "</CommonPrefixes>");
        } else {
            append_contents(page, name, &listing->entry.info);
        }
        memcpy(page->last, name.data, name.size);
        page->last_size = name.size;
    }
    return kind;
}

static void append_page(struct rg_text *text, const struct rg_api_listing *listing,
                        const struct page *page)
{
    const struct rg_api_request *request = page->request;
    text->failed = text->failed || page->contents.failed || page->prefixes.failed;
    rg_text_append_str(text, XML_HEAD "<ListBucketResult xmlns='" XML_NAMESPACE "'>");
    rg_text_append_element(text, "Name", request->bucket);
    append_name(text, page, "Prefix", request->params[RG_PARAM_PREFIX]);
    if (rg_api_request_has(request, RG_PARAM_DELIMITER)) {
        append_name(text, page, "Delimiter", request->params[RG_PARAM_DELIMITER]);
    }
    append_name(text, page, page->version_2 ? "StartAfter" : "Marker", page->start);
    rg_text_printf(text, "<MaxKeys>%" PRId64 "</MaxKeys>", page->page_max);
    if (page->encodes_url) {
        rg_text_append_str(text, "<EncodingType>url</EncodingType>");
    }
    rg_text_printf(text, "<IsTruncated>%s</IsTruncated>", listing->more ? "true" : "false");
    if (page->version_2) {
        rg_text_printf(text, "<KeyCount>%" PRIu32 "</KeyCount>", listing->count);
    }
    if (listing->more && page->version_2) {
        rg_text_append_str(text, "<NextContinuationToken>");
        rg_api_listing_append_token(listing, text);
        rg_text_append_str(text, "</NextContinuationToken>");
    } else if (listing->more) {
        append_name(text, page, "NextMarker", (struct rg_h1_slice){page->last, page->last_size});
    }
    rg_text_append(text, page->contents.data, page->contents.size);
    rg_text_append(text, page->prefixes.data, page->prefixes.size);
    rg_text_append_str(text, "</ListBucketResult>");
}

static void list_objects(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket == NULL) {
        return;
    }
    bool version_2 = rg_text_equals(request->params[RG_PARAM_LIST_TYPE], "2");
    struct page page = {
        .request = request,
        .version_2 = version_2,
        .encodes_url = rg_text_equals(request->params[RG_PARAM_ENCODING_TYPE], "url"),
        .start = request->params[version_2 ? RG_PARAM_START_AFTER : RG_PARAM_MARKER],
    };
    if (rg_api_request_int(request, RG_PARAM_MAX_KEYS, RG_LISTING_PAGE_MAX, &page.page_max) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "max-keys is not a number.");
        return;
    }
    page.page_max = RG_MIN(page.page_max, RG_LISTING_PAGE_MAX);
    struct rg_api_listing_query query = {
        .prefix = request->params[RG_PARAM_PREFIX],
        .delimiter = request->params[RG_PARAM_DELIMITER],
        .after = page.start,
        .page_max = (uint32_t)page.page_max,
    };
    if (version_2) {
        query.token = request->params[RG_PARAM_CONTINUATION_TOKEN];
    }
    struct rg_api_listing listing;
    if (rg_api_listing_start(&listing, bucket, &query) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The continuation token is not one of ours.");
        return;
    }
    if (version_2 && rg_rules_effect(call) == RG_EFFECT_EMPTY) {
        listing.query.page_max = 0; /* A marker, unlike a token, is the name of a result. */
    }
    /* A client that asks for 0 keys is not told that more follow. */
    listing.finished = listing.finished || page.page_max == 0;
    int rc = list_page(&listing, &page);
    if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, (struct rg_h1_slice){"", 0});
    } else {
        append_page(&rg_call_of(call)->text, &listing, &page);
        rg_reply_text(call, 200, XML_TYPE);
    }
    rg_text_fini(&page.contents);
    rg_text_fini(&page.prefixes);
}

static void reply_empty(struct rg_server_call *call)
{
    rg_reply_start(call, 200);
    rg_reply_finish(call, 0);
}

static void create_bucket(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_bucket *bucket;
    if (!rg_store_bucket_name_valid(request->bucket)) {
        rg_reply_error(call, RG_API_BUCKET_NAME, "Invalid bucket name: '%.*s'",
                       (int)request->bucket.size, request->bucket.data);
        return;
    }
    if (request->head->content_length > 0) {
        rg_reply_error(
            call, RG_API_NOT_IMPLEMENTED,
            "A bucket's description in XML is not implemented by this emulator; the JSON "
            "API has one.");
        return;
    }
    int rc = rg_store_create_bucket(rg_service_of(call)->store, request->bucket, &bucket);
    if (rc == -EEXIST) {
        rg_reply_error(call, RG_API_CONFLICT, "You already own this bucket: %.*s",
                       (int)request->bucket.size, request->bucket.data);
    } else if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, (struct rg_h1_slice){"", 0});
    } else {
        reply_empty(call);
    }
}

static void start_bucket(struct rg_server_call *call, const struct rg_api_request *request)
{
    if (rg_api_request_has(request, RG_PARAM_XML_UPLOADS) && rg_api_request_is(request, "GET")) {
        rg_xml_multipart_list(call, request);
    } else if (rg_api_request_has(request, RG_PARAM_DELETE) && rg_api_request_is(request, "POST")) {
        rg_xml_delete_start(call, request);
    } else if (rg_api_request_is(request, "GET")) {
        list_objects(call, request);
    } else if (rg_api_request_is(request, "HEAD")) {
        if (rg_reply_find_bucket(call, request) != NULL) {
            reply_empty(call);
        }
    } else if (rg_api_request_is(request, "PUT")) {
        create_bucket(call, request);
    } else if (rg_api_request_is(request, "DELETE")) {
        rg_reply_remove_bucket(call, request);
    } else {
        rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                       "%.*s of a bucket is not implemented by this emulator.",
                       (int)request->head->method.size, request->head->method.data);
    }
}

static void start_object(struct rg_server_call *call, const struct rg_api_request *request)
{
    const struct rg_h1_slice *start = rg_h1_find(request->head, "x-goog-resumable");
    bool resumable = start != NULL && rg_text_equals(*start, "start");
    if (rg_resumable_is_session(request)) {
        rg_resumable_continue(call, request);
    } else if (resumable &&
               (rg_api_request_is(request, "POST") || rg_api_request_is(request, "PUT"))) {
        rg_resumable_start(call, request);
    } else if (rg_xml_multipart_is(request)) {
        rg_xml_multipart_start(call, request);
    } else if (rg_api_request_is(request, "PUT") &&
               rg_h1_find(request->head, "x-goog-copy-source") != NULL) {
        rg_rewrite_start_xml(call, request);
    } else if (rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD")) {
        rg_media_get(call, request);
    } else if (rg_api_request_is(request, "PUT")) {
        rg_upload_receive(call, request);
    } else if (rg_api_request_is(request, "DELETE")) {
        rg_media_remove(call, request);
    } else {
        rg_reply_error(call, RG_API_METHOD, "An object knows no such method.");
    }
}

void rg_xml_api_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    switch (request->route) {
    case RG_ROUTE_XML_BUCKET:
        start_bucket(call, request);
        break;
    case RG_ROUTE_XML_OBJECT:
        start_object(call, request);
        break;
    default:
        if (rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD")) {
            list_buckets(call);
        } else {
            rg_reply_error(call, RG_API_METHOD, "The path knows no such method.");
        }
        break;
    }
}
