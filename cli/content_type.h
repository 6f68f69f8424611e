/* The type of what a file holds, by its name. */
#ifndef RG_CLI_CONTENT_TYPE_H
#define RG_CLI_CONTENT_TYPE_H

/* By what stands behind the last "." of a path or an object's name, in any case; NULL: nothing is
 * known of that. In static storage.
 *
 * The types are those that gcloud, gsutil and gcsfs guess, which take Python's table (mimetypes),
 * with those that its newer versions and IANA's registry have added. Compressed files have the type
 * of the compression, "a.tar.gz" is application/gzip, because the service stores no other encoding
 * for them: with one it would decompress what is read. The table is built in, so that one file gets
 * one type on all machines. */
const char *content_type_guess(const char *name);

#endif
